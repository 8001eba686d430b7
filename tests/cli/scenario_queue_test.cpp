#include <doctest/doctest.h>
#include <signal.h>

#include <fstream>
#include <string>
#include <vector>

#include "support/chance.hpp"
#include "support/fleet.hpp"
#include "support/scene.hpp"

namespace dlock::test {
namespace {

const char* const queue_tenure = "\"$STAMP\" \"$LOG\" start q $i; \"$STAMP\" \"$LOG\" end q $i";
const char* const long_tenure =
    "\"$STAMP\" \"$LOG\" start q $i; until [ -e go-$i ]; do sleep 0.01; done; "
    "\"$STAMP\" \"$LOG\" end q $i";

/// Counts the steps of a test in which each process woke up.
class WakeCounter {
 public:
  void watch(pid_t pid) { seen_.push_back({pid, voluntary_switches(pid), 0}); }
  /// A waiter that has just queued up may not sleep yet.
  void settle() {
    await_quiet(milliseconds(50));
    for (Seen& each : seen_) each.switches = voluntary_switches(each.pid);
  }
  void step() {
    await_quiet(milliseconds(20));
    for (Seen& each : seen_) {
      const long now = voluntary_switches(each.pid);
      if (now >= 0 && now != each.switches) ++each.wakes;
      each.switches = now;
    }
  }
  int wakes(std::size_t index) const { return seen_.at(index).wakes; }

 private:
  /// Waits until all processes sleep again, else a wake-up could count for two steps.
  void await_quiet(milliseconds span) const {
    std::vector<pid_t> pids;
    for (const Seen& each : seen_) pids.push_back(each.pid);
    REQUIRE(fall_asleep(pids, span));
  }

  struct Seen {
    pid_t pid;
    long switches;
    int wakes;
  };
  std::vector<Seen> seen_;
};

/// Six clients wait; the first, two in the middle and the last are killed. Returns how soon the two
/// others have had the lock after the holder.
milliseconds time_past_the_dead(const Scene& scene) {
  Process holder = scene.hold("q", "go-0");
  std::vector<Process> waiters;
  for (std::size_t i = 1; i <= 6; ++i) waiters.push_back(scene.queue_up("q", i, queue_tenure));
  for (const int dead : {0, 2, 3, 5}) waiters[static_cast<std::size_t>(dead)].kill_all();
  for (const int dead : {0, 2, 3, 5}) waiters[static_cast<std::size_t>(dead)].wait();
  const auto released = BootClock::now();
  scene.touch("go-0");
  CHECK(waiters[1].wait().exit_code == 0);
  CHECK(waiters[4].wait().exit_code == 0);
  const milliseconds taken = passed_since(released);
  CHECK(holder.wait().exit_code == 0);
  CHECK(order_of(scene.log()) == std::vector<long>{2, 5});
  CHECK(scene.run({"run", "-n", "-k", "q", "--", "true"}).exit_code == 0);
  CHECK(scene.kept() == scene.may_stay({"q"}));
  return taken;
}

/// The first of three waiters is stopped. Returns how soon the two others have had the lock.
milliseconds time_past_a_stopped_head(const Scene& scene, const std::vector<std::string>& flags) {
  Process holder = scene.hold("q", "go-0");
  Process head = scene.queue_up("q", 1, queue_tenure, flags);
  Process second = scene.queue_up("q", 2, queue_tenure);
  Process third = scene.queue_up("q", 3, queue_tenure);
  head.stop();
  const auto released = BootClock::now();
  scene.touch("go-0");
  CHECK(second.wait().exit_code == 0);
  CHECK(third.wait().exit_code == 0);
  const milliseconds taken = passed_since(released);
  head.signal(SIGCONT);
  CHECK(head.wait().exit_code == 0);
  CHECK(holder.wait().exit_code == 0);
  CHECK(order_of(scene.log()) == std::vector<long>{2, 3, 1});
  CHECK(overlaps(scene.log()).empty());
  if (flags.empty()) CHECK(scene.kept() == scene.may_stay({"q"}));
  return taken;
}

/// In one of three tries at least, as a busy machine delays everybody.
bool a_stopped_head_costs_six_seconds(const std::vector<std::string>& flags = {}) {
  return in_one_of(3, [&] {
    const auto taken = time_past_a_stopped_head(RedisScene(), flags);
    return taken < milliseconds(6000) + stretched(milliseconds(2000));
  });
}

long resident_kb(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) return std::stol(line.substr(6));
  }
  return -1;
}

}  // namespace

/// Each step is one hand-over: its holder has started when the step is counted. Waiters are
/// observed while they wait, and once more after their grant.
TEST_CASE("Redis: fifty waiters are served in the order they came, each woken at most twice") {
  const RedisScene scene;
  constexpr std::size_t told_together = 8;  ///< how many may be told when to ask
  constexpr std::size_t count = 50;
  Process holder = scene.hold("q", "go-0");
  std::vector<Process> waiters;
  WakeCounter wakes;
  const auto begun = BootClock::now();
  for (std::size_t i = 1; i <= count; ++i) {
    waiters.push_back(scene.queue_up("q", i, long_tenure));
  }
  for (const Process& waiter : waiters) wakes.watch(waiter.pid());
  wakes.settle();
  for (std::size_t i = 0; i < count; ++i) {
    scene.touch("go-" + std::to_string(i));
    REQUIRE(eventually([&] { return tenures(scene.log()).size() == i + 1; }));
    wakes.step();
    // If a busy machine makes this long, a waiter also wakes because it asks again, five seconds
    // after it queued up; the answer may have changed by then, and it is told once more.
    const auto by_itself = static_cast<int>((BootClock::now() - begun) / std::chrono::seconds(5));
    CAPTURE(i);
    CHECK(wakes.wakes(i) <= 2 + 2 * by_itself);
    const std::size_t not_told = i + 1 + told_together;
    if (not_told < count) CHECK(wakes.wakes(not_told) <= by_itself);
  }
  scene.touch("go-" + std::to_string(count));
  for (Process& waiter : waiters) CHECK(waiter.wait().exit_code == 0);
  CHECK(holder.wait().exit_code == 0);
  CHECK(order_of(scene.log()) == first_numbers(static_cast<long>(count)));
  CHECK(overlaps(scene.log()).empty());
  CHECK(scene.kept() == scene.may_stay({"q"}));
}

TEST_CASE("Redis: a hand-over takes two calls of the script at most and wakes two at most") {
  const RedisScene scene;
  Process holder = scene.hold("q", "go-0");
  std::vector<Process> waiters;
  const auto begun = BootClock::now();
  for (std::size_t i = 1; i <= 20; ++i) waiters.push_back(scene.queue_up("q", i, queue_tenure));
  scene.server.command({"CONFIG", "RESETSTAT"});
  scene.touch("go-0");
  for (Process& waiter : waiters) CHECK(waiter.wait().exit_code == 0);
  CHECK(holder.wait().exit_code == 0);
  const std::string stats = scene.server.command({"INFO", "commandstats"}).text;
  const auto calls = [&](const std::string& command) {
    const std::string name = "cmdstat_" + command + ":calls=";
    const auto at = stats.find(name);
    return at == std::string::npos ? 0 : std::stol(stats.substr(at + name.size()));
  };
  // If a busy machine makes this long, each waiter asks again, five seconds after it queued up.
  const auto by_itself =
      20 * static_cast<long>((BootClock::now() - begun) / std::chrono::seconds(5));
  CHECK(calls("evalsha") <= 2 * 21 + by_itself);
  CHECK(calls("eval") == 0);
  CHECK(calls("publish") <= 2 * 20 + by_itself);
}

TEST_CASE("Redis: waiters killed anywhere in the queue delay the others by one moment together") {
  // Neither a lease nor the two seconds of an unconfirmed grant.
  CHECK(in_one_of(3,
                  [] { return time_past_the_dead(RedisScene()) < stretched(milliseconds(2000)); }));
}

TEST_CASE("Redis: a stopped waiter at the head costs the others six seconds at most") {
  CHECK(a_stopped_head_costs_six_seconds());
}

TEST_CASE("Redis: what a stopped waiter was to have has no --min-hold, and it queues again") {
  CHECK(a_stopped_head_costs_six_seconds({"--min-hold", "20s"}));
}

TEST_CASE("Redis: three stopped waiters cost the others two seconds each at most") {
  const RedisScene scene;
  Process holder = scene.hold("q", "go-0");
  std::vector<Process> stopped;
  for (std::size_t i = 1; i <= 3; ++i) {
    stopped.push_back(scene.queue_up("q", i, queue_tenure));
    stopped.back().stop();
  }
  Process live = scene.queue_up("q", 4, queue_tenure);
  const auto released = BootClock::now();
  scene.touch("go-0");
  CHECK(live.wait().exit_code == 0);
  CHECK(BootClock::now() - released < milliseconds(6000) + stretched(milliseconds(2000)));
  for (Process& each : stopped) each.signal(SIGCONT);
  for (Process& each : stopped) CHECK(each.wait().exit_code == 0);
  CHECK(holder.wait().exit_code == 0);
  CHECK(order_of(scene.log()).size() == 4);
  CHECK(order_of(scene.log()).front() == 4);
  CHECK(overlaps(scene.log()).empty());
}

TEST_CASE_TEMPLATE("a holder and a waiter need less than 6 MB each", SomeScene, LocalScene,
                   RedisScene) {
  const SomeScene scene;
  Process holder = scene.hold("k", "go");
  Process waiter = scene.queue_up("k", 1, "true");
  for (const pid_t pid : {holder.pid(), waiter.pid()}) {
    CHECK(resident_kb(pid) > 0);
    if (!DLOCK_SANITIZED) CHECK(resident_kb(pid) < 6 * 1024);
  }
  scene.touch("go");
  CHECK(holder.wait().exit_code == 0);
  CHECK(waiter.wait().exit_code == 0);
}

namespace {

constexpr milliseconds exclusion_time{110'000};

void finish_well(std::vector<Process>& processes) {
  for (Process& process : processes) {
    const Result result = process.wait(exclusion_time);
    CHECK(result.exit_code == 0);
    CHECK(result.signal == 0);
    CHECK(without_late_releases(result.err) == "");
  }
}

std::vector<Process> start_shells(const Scene& scene, int count, const std::string& script) {
  std::vector<Process> processes;
  for (int i = 0; i < count; ++i) processes.push_back(scene.start_shell(script));
  return processes;
}

void twenty_processes_count_to_a_thousand(const Scene& scene) {
  write_file(scene.path("f"), "0\n");
  auto processes = start_shells(scene, 20,
                                "for i in $(seq 50); do \"$DLOCK\" run -q -k c -- "
                                "sh -c 'n=$(cat f); echo $((n+1)) >f' || exit 1; done");
  finish_well(processes);
  CHECK(read_file(scene.path("f")) == "1000\n");
  CHECK(scene.kept() == scene.may_stay({"c"}));
}

/// Each holder stays until there are three or half a second has passed, which shows that three can
/// hold it at once.
void three_at_a_time(const Scene& scene) {
  auto processes = start_shells(
      scene, 12,
      "for i in 1 2 3 4; do \"$DLOCK\" run -q -k s --limit 3 -- sh -c '"
      "\"$STAMP\" \"$LOG\" start s; touch in-$$; "
      "for j in $(seq 50); do set -- in-*; [ $# -ge 3 ] && break; sleep 0.01; done; rm in-$$; "
      "\"$STAMP\" \"$LOG\" end s' || exit 1; done");
  finish_well(processes);
  CHECK(tenures(scene.log()).size() == 48);
  CHECK(most_at_once(scene.log(), "s") == 3);
  CHECK(scene.kept() == scene.may_stay({"s"}));
}

}  // namespace

TEST_CASE("local: twenty processes count to a thousand under one lock") {
  twenty_processes_count_to_a_thousand(LocalScene());
}

TEST_CASE("Redis: twenty processes count to a thousand under one lock") {
  twenty_processes_count_to_a_thousand(RedisScene());
}

TEST_CASE("local: of twelve processes three are in a semaphore of three, never more") {
  three_at_a_time(LocalScene());
}

TEST_CASE("Redis: of twelve processes three are in a semaphore of three, never more") {
  three_at_a_time(RedisScene());
}

}  // namespace dlock::test
