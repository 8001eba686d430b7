#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "cli/place.hpp"
#include "support/fleet.hpp"

namespace dlock::test {
namespace {

using Words = std::vector<std::string>;

/// Longer than a request that waits for nobody takes, and shorter than one to a server that is
/// silent.
constexpr milliseconds no_time{2500};

Result latch(const Scene& scene, const std::string& key, const std::string& verb, Words more = {}) {
  more.insert(more.begin(), {"latch", verb, "-k", key});
  return scene.run(more);
}

Process waiter(const Scene& scene, const std::string& key) {
  Process process = scene.start({"latch", "wait", "-k", key});
  REQUIRE(eventually([&] { return holds(process.err(), "waiting: "); }));
  return process;
}

std::string name_of(const std::string& key) { return "dlock:{" + key + "}:latch"; }

/// How many a server has, the one entry for the count among them.
long long entries(const FleetScene& scene, std::size_t server, const std::string& key) {
  return scene.fleet.server(server).command({"ZCARD", name_of(key)}).number;
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
  for (const auto& result :
       {latch(scene, "a", "open", {"--count=3"}), latch(scene, "a", "arrive", {"--by=x"}),
        latch(scene, "a", "arrive", {"--by=y"})}) {
    CHECK(result.exit_code == 0);
    CHECK(result.duration < no_time * slower);
  }
  Process waits = waiter(scene, "a");
  CHECK(entries(scene, 2, "a") == 0);
  silent.close_connections();
  silent.heal();
  // Somebody who waits gives it what it lacks, once he asks it again.
  Process another = waiter(scene, "a");
  CHECK(eventually([&] { return entries(scene, 2, "a") == 3; }));
  CHECK(scene.fleet.server(2).command({"PTTL", name_of("a")}).number > 80'000'000);
  scene.fleet.proxy(0).refuse(true);
  scene.fleet.proxy(0).close_connections();
  const auto begun = BootClock::now();
  CHECK(latch(scene, "a", "arrive").exit_code == 0);
  CHECK(waits.wait().exit_code == 0);
  CHECK(another.wait().exit_code == 0);
  // Not by itself, after 25 s.
  CHECK(BootClock::now() - begun < std::chrono::seconds(10));
  CHECK(latch(scene, "a", "wait", {"-n"}).exit_code == 0);
  scene.fleet.proxy(0).refuse(false);
}

void opens_with_those_that_arrived_anywhere(const FleetScene& scene) {
  CHECK(latch(scene, "b", "open", {"--count=3"}).exit_code == 0);
  for (std::size_t i = 0; i < 3; ++i) {
    REQUIRE(eventually([&] { return entries(scene, i, "b") == 1; }));
  }
  arrive_behind_the_back(scene, 0, "b", {"x", "y"});
  arrive_behind_the_back(scene, 1, "b", {"y", "z"});
  arrive_behind_the_back(scene, 2, "b", {"z", "x"});
  CHECK(latch(scene, "b", "wait", {"-n"}).exit_code == 0);
  int open = 0;
  for (std::size_t i = 0; i < 3; ++i) open += entries(scene, i, "b") == 4 ? 1 : 0;
  CHECK(open >= 2);
}

/// One hears of an arrival at one server, the other of one at another: nobody has seen both.
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
