#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "support/chance.hpp"
#include "support/dlock_binary.hpp"
#include "support/fleet.hpp"
#include "support/one_of_tries.hpp"
#include "support/stretched.hpp"

namespace dlock::test {
namespace {

using Clock = std::chrono::steady_clock;

const char* const majority_tenure = "\"$STAMP\" \"$LOG\" start q $i; \"$STAMP\" \"$LOG\" end q $i";

/// The value below which the fraction `part` of the values lies.
double quantile(std::vector<double> values, double part) {
  std::sort(values.begin(), values.end());
  return values.at(static_cast<std::size_t>(static_cast<double>(values.size()) * part));
}

double median(std::vector<double> values) { return quantile(std::move(values), 0.5); }

double as_ms(milliseconds time) { return static_cast<double>(time.count()); }

/// The most turns of others between two turns of one client, or before its first.
std::size_t longest_passed_over(const std::vector<long>& order, long count) {
  std::size_t longest = 0;
  for (long who = 1; who <= count; ++who) {
    std::size_t since = 0;
    const auto last = std::find(order.rbegin(), order.rend(), who).base();
    for (auto each = order.begin(); each != last; ++each) {
      longest = std::max(longest, since);
      since = *each == who ? 0 : since + 1;
    }
  }
  return longest;
}

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

/// Whether ten queued waiters get the lock in order once its holder leaves. A waiter that the
/// machine stalls confirms its hand-over too late, and comes after the next one.
bool ten_in_order(const FleetScene& scene, std::vector<double>& gaps_ms) {
  constexpr long count = 10;
  write_file(scene.log(), "");
  Process holder = scene.start({"run", "-q", "-k", "q", "--", "sh", "-c",
                                "i=99; \"$STAMP\" \"$LOG\" start q $i; until [ -e go ]; do sleep "
                                "0.01; done; \"$STAMP\" \"$LOG\" end q $i"});
  REQUIRE(eventually([&] { return !read_file(scene.log()).empty(); }));
  std::vector<Process> waiters;
  for (long i = 1; i <= count; ++i) {
    waiters.push_back(queue_up_last(scene, "q", i, [&] {
      return scene.start({"run", "-q", "-k", "q", "--", "sh", "-c",
                          "i=" + std::to_string(i) + "; " + majority_tenure});
    }));
    std::this_thread::sleep_for(stretched(milliseconds(5)));
  }
  scene.touch("go");
  CHECK(holder.wait().exit_code == 0);
  for (Process& waiter : waiters) CHECK(waiter.wait().exit_code == 0);
  unlink(scene.path("go").c_str());

  const auto all = tenures(scene.log());
  CHECK(overlaps(scene.log()).empty());
  auto order = order_of(scene.log());
  REQUIRE(order.size() == count + 1);
  order.erase(order.begin());
  const bool in_order = order == first_numbers(count);
  std::sort(order.begin(), order.end());
  CHECK(order == first_numbers(count));
  for (std::size_t i = 1; i < all.size(); ++i) {
    gaps_ms.push_back(static_cast<double>(all[i].start_ns - all[i - 1].end_ns) / 1e6);
  }
  return in_order;
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
    CHECK(result.exit_code == (result.out.empty() ? 75 : 0));
    CHECK(result.err == "");
  }
  return ran;
}

double ms_of_a_run(const std::vector<std::string>& urls, const std::string& key) {
  ProcessOptions options;
  options.env = {{"DLOCK_SERVER", side_by_side(urls)}};
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

TEST_CASE("majority: ten who wait for five servers are let in in order, and soon") {
  const FleetScene scene({.direct = true});
  std::vector<double> gaps;
  const int rounds = runs_of_this_test(20);
  for (int i = 0; i < rounds; ++i) CHECK(in_one_of(3, [&] { return ten_in_order(scene, gaps); }));
  MESSAGE(gaps.size() << " hand-overs, median " << median(gaps) << " ms, p95 "
                      << quantile(gaps, 0.95) << " ms, longest " << quantile(gaps, 0.9999)
                      << " ms");
  CHECK(median(gaps) < as_ms(stretched(milliseconds(50))));
}

namespace {

/// Ten clients ask again and again; returns the most turns of others between two turns of one.
std::size_t longest_of_ten() {
  const FleetScene scene({.direct = true});
  const int turns = runs_of_this_test(10);
  constexpr long count = 10;
  std::vector<Process> shells;
  for (long i = 1; i <= count; ++i) {
    shells.push_back(scene.start_shell(
        "i=" + std::to_string(i) + "; export i; for turn in $(seq " + std::to_string(turns) +
        "); do \"$DLOCK\" run -q -k q -- sh -c '" + majority_tenure + "' || exit 1; done"));
  }
  for (Process& shell : shells) {
    const Result result = shell.wait(milliseconds(110'000));
    CHECK(result.exit_code == 0);
    CHECK(result.err == "");
  }
  CHECK(overlaps(scene.log()).empty());
  const auto order = order_of(scene.log());
  CHECK(order.size() == static_cast<std::size_t>(count * turns));
  const std::size_t longest = longest_passed_over(order, count);
  MESSAGE(order.size() << " turns, and between two of the same one at most " << longest);
  return longest;
}

}  // namespace

TEST_CASE("majority: of ten who come again and again nobody is passed over") {
  // At most nine are before a client in the queue; the rest come while it restarts.
  CHECK(in_one_of(3, [] { return longest_of_ten() < 50; }));
}

TEST_CASE("majority: of six who ask at the same moment and do not wait exactly one runs") {
  const FleetScene scene;
  const int rounds = runs_of_this_test(15);
  for (int i = 0; i < rounds; ++i) CHECK(winners(scene, "k" + std::to_string(i), 6) == 1);
}

TEST_CASE("majority: where two of five are down, exactly one of those who do not wait runs") {
  const FleetScene scene;
  for (const std::size_t i : {3U, 4U}) scene.fleet.proxy(i).refuse(true);
  const int rounds = runs_of_this_test(12);
  for (int i = 0; i < rounds; ++i) CHECK(winners(scene, "k" + std::to_string(i), 3) == 1);
}

TEST_CASE("majority: three at most are in a semaphore of three on five servers") {
  const FleetScene scene({.direct = true});
  std::vector<Process> shells;
  for (int i = 0; i < 8; ++i) {
    shells.push_back(scene.start_shell(
        "for i in 1 2 3 4 5; do \"$DLOCK\" run -q -k s --limit 3 -- sh -c '"
        "\"$STAMP\" \"$LOG\" start s; touch in-$$; "
        "for j in $(seq 50); do set -- in-*; [ $# -ge 3 ] && break; sleep 0.01; done; rm in-$$; "
        "\"$STAMP\" \"$LOG\" end s' || exit 1; done"));
  }
  for (Process& shell : shells) {
    const Result result = shell.wait(milliseconds(110'000));
    CHECK(result.exit_code == 0);
    CHECK(result.err == "");
  }
  CHECK(tenures(scene.log()).size() == 40);
  CHECK(most_at_once(scene.log(), "s") == 3);
  CHECK(leaves_nothing(scene, {"s"}));
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
  for (int i = 0; i < runs_of_this_test(15); ++i) {
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
