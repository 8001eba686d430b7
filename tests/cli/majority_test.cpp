#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "cli/place.hpp"
#include "support/chance.hpp"
#include "support/fleet.hpp"
#include "support/stretched.hpp"

namespace dlock::test {
namespace {

using nlohmann::json;

std::string token_of(const Scene& scene, const std::string& key) {
  const Result result = scene.run({"acquire", "-t", "30", "-k", key});
  CAPTURE(result.err);
  REQUIRE(result.exit_code == 0);
  return result.out.substr(0, result.out.find('\n'));
}

int exit_code(const Scene& scene, const std::vector<std::string>& arguments) {
  return scene.run(arguments).exit_code;
}

/// A slow server gets a release after the deciding majority; no lease ends that soon.
bool becomes_free(const Scene& scene, const std::string& key) {
  return eventually(
      [&] {
        return exit_code(scene, {"inspect", "-q", key}) == 1;
      },
      milliseconds(10'000));
}

}  // namespace

TEST_CASE("majority: a lock is acquired, renewed and released over five servers as on one") {
  const FleetScene scene;
  const std::string token = token_of(scene, "t");
  CHECK(held_on(scene.fleet, "t") >= 3);
  CHECK(exit_code(scene, {"run", "-n", "-k", "t", "--", "true"}) == 75);
  CHECK(exit_code(scene, {"inspect", "-q", "t"}) == 0);
  CHECK(exit_code(scene, {"renew", "-k", "t", "--token", token, "-t", "40"}) == 0);
  const auto state = json::parse(scene.inspect("t"));
  CHECK(state["holders"].size() == 1);
  CHECK(state["holders"][0]["lease_left_ms"] > 30'000);
  CHECK(exit_code(scene, {"release", "-k", "t", "--token", token}) == 0);
  CHECK(exit_code(scene, {"release", "-k", "t", "--token", token}) == 79);
  CHECK(exit_code(scene, {"renew", "-k", "t", "--token", token}) == 79);
  CHECK(becomes_free(scene, "t"));
  CHECK(exit_code(scene, {"acquire", "-t", "61", "-k", "t"}) == 64);
}

TEST_CASE("majority: a server that was away gets the hold back, and inspect says where it stands") {
  const FleetScene scene;
  const auto urls = scene.fleet.urls();
  scene.fleet.proxy(4).refuse(true);
  Process job = scene.hold("k", "go", {"-v", "-t", "12"});
  // A late answer is missing from one look, and present in the next.
  const auto is_held_on = [&](int servers) {
    const std::string said = "held on " + std::to_string(servers) + " of 5 servers";
    return eventually([&] {
      if (times(scene.run({"inspect", "k"}).out, said) != 1) return false;
      const json state = json::parse(scene.inspect("k"), nullptr, false);
      if (state.is_discarded()) return false;
      const json& holders = state.at("holders");
      return holders.size() == 1 && holders[0].at("held_on") == servers &&
             holders[0].at("servers") == 5;
    });
  };
  // The job began as soon as three servers granted the lock.
  CHECK(is_held_on(4));
  CHECK(eventually([&] { return times(job.err(), "k is held on 4 of 5 servers") > 0; }));
  CHECK(times(job.err(), urls[4]) > 0);
  scene.fleet.proxy(4).heal();
  CHECK(eventually([&] { return !stored_hold(scene.fleet.server(4), "k").empty(); }));
  CHECK(eventually([&] { return times(job.err(), "k is held on 5 of 5 servers") > 0; }));
  CHECK(is_held_on(5));
  scene.touch("go");
  CHECK(job.wait().exit_code == 0);
  CHECK(eventually([&] { return held_on(scene.fleet, "k") == 0; }));
}

/// The state of a server an hour after it lost its memory.
void forget_all(const RedisServer& server) {
  server.command({"FLUSHALL"});
  record_process_of(server);
}

TEST_CASE("majority: a server that forgot gets back what a waiter and a script hold") {
  const FleetOptions options{.servers = 3};
  const FleetScene scene(options);
  const Fleet& fleet = scene.fleet;
  Process other = scene.hold("b", "go", {"-t", "60"});
  // The job began as soon as two servers granted the lock: if server 0, which will forget, were one
  // of only two, others could get a majority.
  REQUIRE(eventually([&] { return held_on(fleet, "b") == 3; }));
  Process waiter = patient_start(
      [&] {
        return scene.start({"run", "-t", "12", "-k", "a", "-k", "b", "--", "echo", "ran"});
      },
      [&] { return scene.waiting("b") == 1; }, "it did not wait");
  Process script = patient_start(
      [&] {
        return scene.start_shell(
            "T=$(\"$DLOCK\" acquire -t 12 -k c --attach $$) || exit; echo in; until [ -e go ]; do "
            "sleep 0.01; done");
      },
      says_in, "not acquired");
  const auto both_stand_on = [&](std::size_t server) {
    const RedisServer& one = fleet.server(server);
    return !stored_hold(one, "a").empty() && !stored_hold(one, "c").empty();
  };
  REQUIRE(eventually([&] {
    return both_stand_on(0) && both_stand_on(1) && both_stand_on(2) && scene.waiting("b") == 1;
  }));
  forget_all(fleet.server(0));
  CHECK(eventually([&] { return both_stand_on(0); }));
  // Without server 0, too few would be left.
  fleet.proxy(2).refuse(true);
  fleet.proxy(2).close_connections();
  for (int i = 0; i < 3; ++i) {
    const std::string before = stored_hold(fleet.server(0), "a");
    CHECK(eventually([&] { return stored_hold(fleet.server(0), "a") != before; }));
  }
  scene.touch("go");
  check_ran(waiter.wait(), "ran\n");
  CHECK(other.wait().exit_code == 0);
  CHECK(script.wait().exit_code == 0);
}

TEST_CASE("majority: a server that hears nothing any more is left behind by a release") {
  const FleetScene scene;
  Process job = scene.hold("k", "go", {"-t", "30"});
  REQUIRE(eventually([&] { return held_on(scene.fleet, "k") == 5; }));
  scene.fleet.proxy(0).black_hole(Direction::requests);
  scene.touch("go");
  const Result result = job.wait();
  CHECK(result.exit_code == 0);
  CHECK(eventually([&] { return held_on(scene.fleet, "k") == 1; }));
  CHECK(exit_code(scene, {"run", "-n", "-k", "k", "--", "true"}) == 0);
  CHECK(becomes_free(scene, "k"));
}

namespace {

using Clock = std::chrono::steady_clock;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.at(values.size() / 2);
}

double as_ms(milliseconds time) { return static_cast<double>(time.count()); }

/// Whether most servers have at least `count` waiters. A holder may still wait on some of them.
bool wait_on_most(const Fleet& fleet, const std::string& key, long long count) {
  std::size_t servers = 0;
  for (std::size_t i = 0; i < fleet.size(); ++i) {
    const Reply waiters = fleet.server(i).command({"ZCARD", "dlock:{" + key + "}:queue"});
    if (waiters.number >= count) ++servers;
  }
  return servers > fleet.size() / 2;
}

/// The waiters for the key on this server, in order.
std::vector<std::string> queue_on(const RedisServer& server, const std::string& key) {
  std::vector<std::string> tokens;
  const Reply waiters = server.command({"ZRANGE", "dlock:{" + key + "}:queue", "0", "-1"});
  for (const Reply& token : waiters.items) tokens.push_back(token.text);
  return tokens;
}

std::set<std::string> all_who_wait(const Fleet& fleet, const std::string& key) {
  std::set<std::string> tokens;
  for (std::size_t i = 0; i < fleet.size(); ++i) {
    for (const std::string& token : queue_on(fleet.server(i), key)) tokens.insert(token);
  }
  return tokens;
}

/// Whether most servers have a waiter that is not in `others`; with `as_last`, at the end of the
/// queue.
bool newcomer_waits(const Fleet& fleet, const std::string& key, const std::set<std::string>& others,
                    bool as_last) {
  std::size_t servers = 0;
  for (std::size_t i = 0; i < fleet.size(); ++i) {
    const auto tokens = queue_on(fleet.server(i), key);
    const auto from = as_last && !tokens.empty() ? tokens.end() - 1 : tokens.begin();
    const auto is_new = [&](const std::string& token) { return !others.contains(token); };
    if (std::any_of(from, tokens.end(), is_new)) ++servers;
  }
  return servers > fleet.size() / 2;
}

/// Starts waiter number `count` of the key, last in the queue. Each waiter measures the servers'
/// clocks itself, on a busy machine only to some milliseconds; one that gets before another that
/// way is restarted.
Process queue_up_last(const FleetScene& scene, const std::string& key, long count,
                      const std::function<Process()>& start) {
  const Fleet& fleet = scene.fleet;
  for (int tries = 0;; ++tries) {
    const auto others = all_who_wait(fleet, key);
    Process waiter = start();
    REQUIRE(eventually([&] {
      return wait_on_most(fleet, key, count) && newcomer_waits(fleet, key, others, false);
    }));
    if (newcomer_waits(fleet, key, others, true)) return waiter;
    REQUIRE(tries < 3);
    waiter.signal(SIGTERM);
    waiter.wait();
    REQUIRE(eventually([&] { return !wait_on_most(fleet, key, count); }));
  }
}

/// Starts all at once, without waiting; returns how many ran.
std::size_t winners(const FleetScene& scene, const std::string& key, int count) {
  std::vector<Process> all;
  for (int i = 0; i < count; ++i) {
    all.push_back(scene.start({"run", "-q", "-n", "-k", key, "--", "sh", "-c",
                               "echo ran; until [ -e over-" + key + " ]; do sleep 0.01; done"}));
  }
  const auto ended = [&] {
    return std::count_if(all.begin(), all.end(), [](const Process& p) { return !p.running(); });
  };
  CHECK(eventually([&] { return ended() == count - 1; }));
  scene.touch("over-" + key);
  std::size_t ran = 0;
  for (Process& each : all) {
    const Result result = each.wait();
    if (result.out == "ran\n") ++ran;
    check_quiet(result, (result.out.empty() ? 75 : 0));
  }
  return ran;
}

double ms_of_a_run(const std::vector<std::string>& urls, const std::string& key) {
  const ProcessOptions options{.env = {{"DLOCK_SERVER", side_by_side(urls)}}};
  const auto before = Clock::now();
  const Result result = dlock({"run", "-q", "-k", key, "--", "true"}, options);
  CHECK(result.exit_code == 0);
  return std::chrono::duration<double, std::milli>(Clock::now() - before).count();
}

/// The order in which five waiters are served whose hosts have different wall clocks, by position.
std::string order_of_hosts_whose_clocks_differ() {
  using std::chrono::seconds;
  const FleetScene scene({.servers = 3, .direct = true});
  Process holder = scene.hold("k", "go");
  std::vector<Process> waiters;
  const seconds off[] = {seconds(300'000), seconds(5), seconds(0), seconds(-20), seconds(-300'000)};
  for (const seconds by : off) {
    ShimClock clock(true);
    clock.advance(by);
    ProcessOptions on_that_host = scene.options();
    on_that_host.env.merge(clock.environment());
    const auto place = static_cast<long>(waiters.size()) + 1;
    waiters.push_back(queue_up_last(scene, "k", place, [&] {
      return Process({dlock_path(), "run", "-q", "-k", "k", "--", "sh", "-c",
                      "echo " + std::to_string(place) + " >>order"},
                     on_that_host);
    }));
  }
  scene.touch("go");
  CHECK(holder.wait().exit_code == 0);
  for (Process& waiter : waiters) CHECK(waiter.wait().exit_code == 0);
  return read_file(scene.path("order"));
}

}  // namespace

TEST_CASE("majority: who asks first is served first, whatever the wall clocks of the hosts show") {
  CHECK(in_one_of(3, [] { return order_of_hosts_whose_clocks_differ() == "1\n2\n3\n4\n5\n"; }));
}

TEST_CASE("majority: of six who ask at the same moment and do not wait exactly one runs") {
  const FleetScene scene;
  const int rounds = runs_of_this_test(5);
  for (int i = 0; i < rounds; ++i) CHECK(winners(scene, "k" + std::to_string(i), 6) == 1);
}

TEST_CASE("majority: two silent servers of five, and a slow one, cost no time") {
  const Fleet fleet;
  for (const std::size_t i : {3U, 4U}) {
    fleet.proxy(i).black_hole(Direction::requests);
    fleet.proxy(i).black_hole(Direction::replies);
  }
  // Far above the limit below, even on a busy machine.
  fleet.proxy(2).delay(Direction::replies, milliseconds(1000));
  const auto all = fleet.direct_urls();
  const auto proxied = fleet.urls();
  const std::vector<std::string> without_two{all[0], all[1], all[2], proxied[3], proxied[4]};
  const std::vector<std::string> with_slow{all[0], all[1], proxied[2], all[3], all[4]};
  std::vector<double> healthy, silent, slow;
  for (int i = 0; i < runs_of_this_test(5); ++i) {
    const std::string number = std::to_string(i);
    healthy.push_back(ms_of_a_run(all, "a" + number));
    silent.push_back(ms_of_a_run(without_two, "b" + number));
    slow.push_back(ms_of_a_run(with_slow, "c" + number));
  }
  MESSAGE("ms of a run, median: " << median(healthy) << "; two silent: " << median(silent)
                                  << "; one slower by 1 s: " << median(slow));
  const double most = median(healthy) + as_ms(stretched(milliseconds(150)));
  CHECK(median(silent) < most);
  CHECK(median(slow) < most);
}

}  // namespace dlock::test
