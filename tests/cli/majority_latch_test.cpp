#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "cli/place.hpp"
#include "lock/latch.hpp"
#include "support/fleet.hpp"
#include "support/one_of_tries.hpp"
#include "support/patient_start.hpp"

namespace dlock::test {
namespace {

using Words = std::vector<std::string>;

/// Longer than a request without a wait, and shorter than one to a silent server.
constexpr milliseconds no_time{4500};

Result latch(const Scene& scene, const std::string& key, const std::string& verb, Words more = {}) {
  more.insert(more.begin(), {"latch", verb, "-k", key});
  return scene.run(more);
}

Process waiter(const Scene& scene, const std::string& key) {
  Process process = scene.start({"latch", "wait", "-k", key});
  REQUIRE(eventually([&] { return says_that_it_waits(process); }));
  return process;
}

std::string name_of(const std::string& key) { return "dlock:{" + key + "}:latch"; }

/// The number of entries on a server, including the one for the count.
long long entries(const FleetScene& scene, std::size_t server, const std::string& key) {
  return scene.fleet.server(server).command({"ZCARD", name_of(key)}).number;
}

/// Whether each server finally has `count` entries. A client leaves soon after a majority has
/// answered, so a slow server may miss a request: `work` is repeated until it has not.
template <typename Work>
bool all_come_to_have(const FleetScene& scene, const std::string& key, long long count, Work work) {
  return eventually([&] {
    work();
    for (std::size_t i = 0; i < scene.fleet.size(); ++i) {
      if (entries(scene, i, key) != count) return false;
    }
    return true;
  });
}

void arrive_behind_the_back(const FleetScene& scene, std::size_t server, const std::string& key,
                            const Words& ids) {
  for (const std::string& id : ids) {
    const auto place = std::to_string(entries(scene, server, key));
    scene.fleet.server(server).command({"ZADD", name_of(key), place, id});
  }
}

void needs_two_of_three(const FleetScene& scene) {
  auto& silent = scene.fleet.proxy(2);
  silent.black_hole(Direction::requests);
  const auto takes_no_time = [&](const std::string& verb, const std::string& what) {
    // Repeating it changes nothing.
    return in_one_of(3, [&] {
      const auto result = latch(scene, "a", verb, {what});
      CHECK(result.exit_code == 0);
      return result.duration < no_time;
    });
  };
  CHECK(takes_no_time("open", "--count=3"));
  CHECK(takes_no_time("arrive", "--by=x"));
  CHECK(takes_no_time("arrive", "--by=y"));
  Process waits = waiter(scene, "a");
  CHECK(entries(scene, 2, "a") == 0);
  silent.close_connections();
  silent.heal();
  // A waiter sends that server the missing entries at its next request.
  Process another = waiter(scene, "a");
  CHECK(eventually([&] { return entries(scene, 2, "a") == 3; }));
  CHECK(scene.fleet.server(2).command({"PTTL", name_of("a")}).number > 80'000'000);
  scene.fleet.proxy(0).refuse(true);
  scene.fleet.proxy(0).close_connections();
  const auto begun = BootClock::now();
  CHECK(latch(scene, "a", "arrive").exit_code == 0);
  CHECK(waits.wait().exit_code == 0);
  CHECK(another.wait().exit_code == 0);
  // Its own timer would wake the waiter only after 25 s.
  CHECK(BootClock::now() - begun < std::chrono::seconds(10));
  CHECK(latch(scene, "a", "wait", {"-n"}).exit_code == 0);
  scene.fleet.proxy(0).refuse(false);
}

void opens_with_those_that_arrived_anywhere(const FleetScene& scene) {
  const auto open_it = [&] { CHECK(latch(scene, "b", "open", {"--count=3"}).exit_code == 0); };
  REQUIRE(all_come_to_have(scene, "b", 1, open_it));
  arrive_behind_the_back(scene, 0, "b", {"x", "y"});
  arrive_behind_the_back(scene, 1, "b", {"y", "z"});
  arrive_behind_the_back(scene, 2, "b", {"z", "x"});
  CHECK(latch(scene, "b", "wait", {"-n"}).exit_code == 0);
  int open = 0;
  for (std::size_t i = 0; i < 3; ++i) open += entries(scene, i, "b") == 4 ? 1 : 0;
  CHECK(open >= 2);
}

/// The waiter may hear of each arrival from another server, and of both from none.
void wakes_who_hears_of_them_apart(const FleetScene& scene) {
  CHECK(latch(scene, "w", "open", {"--count=2"}).exit_code == 0);
  Process waits = waiter(scene, "w");
  scene.fleet.proxy(0).hold(Direction::replies, Whom::open_now);
  CHECK(latch(scene, "w", "arrive", {"--by=x"}).exit_code == 0);
  CHECK(latch(scene, "w", "arrive", {"--by=y"}).exit_code == 0);
  CHECK(waits.wait(milliseconds(10'000)).exit_code == 0);
  scene.fleet.proxy(0).heal();
}

void tells_counts_that_differ(const FleetScene& scene) {
  CHECK(latch(scene, "c", "open", {"--count=4"}).exit_code == 0);
  CHECK(latch(scene, "c", "open", {"--count=5"}).exit_code == 65);
  const auto by_hand = [&](std::size_t server, const std::string& count) {
    scene.fleet.server(server).command({"ZADD", name_of("d"), "0", "=" + count});
    scene.fleet.server(server).command({"PEXPIRE", name_of("d"), "600000"});
  };
  by_hand(0, "4");
  by_hand(1, "5");
  scene.fleet.proxy(2).refuse(true);
  for (const char* verb : {"arrive", "wait"}) {
    const auto result = latch(scene, "d", verb);
    CHECK(result.exit_code == 65);
    CHECK(holds(result.err, "some servers have a latch for 4, others one for 5"));
  }
  scene.fleet.proxy(2).refuse(false);
}

void needs_a_majority(const FleetScene& scene) {
  CHECK(latch(scene, "m", "open", {"--count=1", "--ttl=2d"}).exit_code == 0);
  Process waits = waiter(scene, "m");
  for (const std::size_t i : {0U, 1U}) {
    scene.fleet.proxy(i).refuse(true);
    scene.fleet.proxy(i).close_connections();
  }
  REQUIRE(eventually([&] { return holds(waits.err(), "; still waiting, trying again\n"); }));
  for (const char* verb : {"arrive", "wait"}) {
    const auto result = latch(scene, "m", verb);
    CHECK(result.exit_code == 69);
    CHECK(holds(result.err, "no majority of 3 servers: "));
  }
  for (const std::size_t i : {0U, 1U}) scene.fleet.proxy(i).refuse(false);
  CHECK(latch(scene, "m", "arrive").exit_code == 0);
  CHECK(waits.wait().exit_code == 0);
}

/// Makes the latch disappear from two servers, unnoticed by the third.
void ends_but_on_the_last(const FleetScene& scene, const std::string& key) {
  const auto arrive = [&] {
    CHECK(latch(scene, key, "open", {"--count=2"}).exit_code == 0);
    for (const char* id : {"x", "y"}) {
      CHECK(latch(scene, key, "arrive", {"--by", id}).exit_code == 0);
    }
  };
  REQUIRE(all_come_to_have(scene, key, 3, arrive));
  for (const std::size_t i : {0U, 1U}) scene.fleet.server(i).command({"DEL", name_of(key)});
}

bool counts(const FleetScene& scene, const std::string& key, const std::string& arrived) {
  const auto result = latch(scene, key, "wait", {"-n"});
  CAPTURE(result.err);
  CHECK(result.exit_code == 75);
  return holds(result.err, key + ": " + arrived + " have arrived\n");
}

void takes_no_arrivals_of_an_older_latch(const FleetScene& scene) {
  CHECK(latch(scene, "o", "open", {"--count=2"}).exit_code == 0);
  ends_but_on_the_last(scene, "o");
  CHECK(latch(scene, "o", "open", {"--count=2"}).exit_code == 0);
  CHECK(counts(scene, "o", "0 of 2"));
  CHECK(eventually([&] {
    latch(scene, "o", "open", {"--count=2"});
    return entries(scene, 2, "o") == 1;
  }));
  ends_but_on_the_last(scene, "o");
  // The third server is cut off while the new latch is opened, and knows only the old one.
  scene.fleet.proxy(2).refuse(true);
  scene.fleet.proxy(2).close_connections();
  CHECK(latch(scene, "o", "open", {"--count=2"}).exit_code == 0);
  CHECK(latch(scene, "o", "arrive", {"--by=x"}).exit_code == 0);
  scene.fleet.proxy(2).refuse(false);
  CHECK(counts(scene, "o", "1 of 2"));
  CHECK(latch(scene, "o", "arrive", {"--by=x"}).exit_code == 0);
  CHECK(counts(scene, "o", "1 of 2"));
  Process waits = waiter(scene, "o");
  CHECK(eventually([&] { return entries(scene, 2, "o") == 2; }));
  CHECK(latch(scene, "o", "arrive", {"--by=z"}).exit_code == 0);
  CHECK(waits.wait().exit_code == 0);
}

void is_one_for_all_who_open_it_at_once(const FleetScene& scene) {
  for (const std::string key : {"p", "q"}) {
    // In the second round, no server can be spared.
    if (key == "q") {
      scene.fleet.proxy(2).refuse(true);
      scene.fleet.proxy(2).close_connections();
    }
    std::vector<Process> jobs;
    for (int i = 0; i < 8; ++i) {
      jobs.push_back(scene.start({"latch", "open", "-k", key, "--count=4"}));
    }
    for (Process& job : jobs) CHECK(job.wait().exit_code == 0);
    jobs.clear();
    for (const std::string id : {"a", "b", "c"}) {
      jobs.push_back(scene.start({"latch", "arrive", "-k", key, "--by", id}));
    }
    for (Process& job : jobs) CHECK(job.wait().exit_code == 0);
    CHECK(counts(scene, key, "3 of 4"));
    CHECK(latch(scene, key, "open", {"--count=4"}).exit_code == 0);
    CHECK(latch(scene, key, "arrive", {"--by=d"}).exit_code == 0);
    CHECK(latch(scene, key, "wait", {"-n"}).exit_code == 0);
  }
  scene.fleet.proxy(2).refuse(false);
}

/// Each server has another latch, as if several clients had opened it at the same time.
void joins_what_was_split(const FleetScene& scene) {
  const std::vector<Words> arrived{{"1", "x"}, {"1", "x", "2", "y"}, {"1", "y"}};
  for (std::size_t i = 0; i < 3; ++i) {
    const auto& server = scene.fleet.server(i);
    Words entries{"ZADD", name_of("s"), "0", "=3 " + new_generation()};
    entries.insert(entries.end(), arrived[i].begin(), arrived[i].end());
    server.command(entries);
    server.command({"PEXPIRE", name_of("s"), "600000"});
  }
  CHECK(latch(scene, "s", "arrive", {"--by=z"}).exit_code == 0);
  CHECK(latch(scene, "s", "wait", {"-n"}).exit_code == 0);
  const auto entry = [&](std::size_t server) {
    return scene.fleet.server(server).command({"ZRANGE", name_of("s"), "0", "0"}).items.at(0).text;
  };
  CHECK(eventually([&] {
    latch(scene, "s", "open", {"--count=3"});
    return entry(0) == entry(1) && entry(1) == entry(2);
  }));
  const auto all = [&](std::size_t server) { return entries(scene, server, "s") == 4 ? 1 : 0; };
  CHECK(all(0) + all(1) + all(2) >= 2);
}

TEST_CASE("majority: of an older latch of the same name nothing counts") {
  const FleetScene scene({.servers = 3});
  takes_no_arrivals_of_an_older_latch(scene);
  is_one_for_all_who_open_it_at_once(scene);
  joins_what_was_split(scene);
}

TEST_CASE("majority: a latch is what two of three servers have of it") {
  const FleetScene scene({.servers = 3});
  needs_two_of_three(scene);
  opens_with_those_that_arrived_anywhere(scene);
  wakes_who_hears_of_them_apart(scene);
  tells_counts_that_differ(scene);
  needs_a_majority(scene);
  CHECK(latch(scene, "none", "wait").exit_code == 79);
  CHECK(latch(scene, "none", "arrive").exit_code == 79);
}

}  // namespace
}  // namespace dlock::test
