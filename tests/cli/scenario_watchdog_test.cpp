// --watchdog: the guarantees when dlock itself cannot act.

#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include "base/process.hpp"
#include "cli/line.hpp"
#include "support/scene.hpp"
#include "support/skip.hpp"

namespace dlock::test {
namespace {

const char* const watched_beats =
    "while [ $((i += 1)) -lt 4000 ]; do \"$STAMP\" \"$LOG\" beat k 1; sleep 0.01; done";

/// A run whose `script` has begun, as `begun()` reports.
Process start_guarded(const Scene& scene, const std::string& script,
                      const std::function<bool()>& begun,
                      const std::vector<std::string>& flags = {}) {
  std::vector<std::string> arguments{"run", "-k", "k", "--watchdog"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  arguments.insert(arguments.end(), {"--", "sh", "-c", script});
  return patient_start([&] { return scene.start(arguments); }, begun, "the command did not begin");
}

/// The pid of dlock's watchdog; 0 if it has none.
pid_t watchdog_of(pid_t dlock) {
  const auto children = children_of(dlock).value();
  const auto found = std::find_if(children.begin(), children.end(), [&](pid_t child) {
    return command_name(child) == "dlock-watchdog";
  });
  return found == children.end() ? 0 : *found;
}

/// The same, once the watchdog has set its name, a moment after its start.
pid_t awaited_watchdog_of(pid_t dlock) {
  CHECK(eventually([&] { return watchdog_of(dlock) != 0; }));
  return watchdog_of(dlock);
}

bool nothing_runs_below(pid_t dlock) {
  const pid_t watchdog = watchdog_of(dlock);
  const auto below = children_of(dlock).value();
  return std::none_of(below.begin(), below.end(),
                      [&](pid_t pid) { return pid != watchdog && is_alive(pid); });
}

std::int64_t last_beat(const Scene& scene) {
  const auto all = tenures(scene.log());
  return all.empty() ? 0 : all.back().end_ns;
}

void takes_the_group_along(const Scene& scene) {
  Process dlock = start_guarded(scene, "sleep 61 & echo $! >helper; wait",
                                [&] { return scene.has_text("helper"); });
  const auto helper = static_cast<pid_t>(scene.number_in("helper"));
  const pid_t watchdog = awaited_watchdog_of(dlock.pid());
  REQUIRE(watchdog != 0);
  dlock.signal(SIGKILL);
  CHECK(eventually([&] { return !is_alive(helper); }));
  CHECK(eventually([&] { return !is_alive(watchdog); }));
  dlock.wait();
}

/// Only dlock is stopped, and its command ignores TERM. Returns whether no process outlived the
/// lease.
bool ends_before_the_lease() {
  RedisScene scene;
  const std::string stubborn =
      "trap '' TERM INT HUP; \"$STAMP\" \"$LOG\" start k 1; setsid sh -c '" +
      std::string(watched_beats) + "' & " + watched_beats;
  Process dlock =
      start_guarded(scene, stubborn, [&] { return !read_file(scene.log()).empty(); }, {"-t", "6s"});
  dlock.stop();
  const Deadline end = lease_end(scene.server, "k");
  REQUIRE(eventually([&] { return nothing_runs_below(dlock.pid()); }));
  CHECK(last_beat(scene) > 0);
  dlock.signal(SIGCONT);
  const Result result = dlock.wait();
  CAPTURE(result.err);
  CHECK(result.exit_code == 79);
  CHECK(times(result.err, " dlock was suspended or stopped; COMMAND was stopped") == 1);
  return last_beat(scene) < end.time_since_epoch().count();
}

}  // namespace

TEST_CASE("watchdog: only dlock is stopped: nothing of the command outlives the lease, 79") {
  CHECK(unless_machine_stalls(ends_before_the_lease));
}

TEST_CASE(
    "watchdog: dlock that wakes in the middle of the kill leaves nothing of the command, 79") {
  RedisScene scene;
  Process dlock = start_guarded(
      scene, "setsid sleep 61 & echo $! >helper; echo $$ >command; wait",
      [&] { return scene.has_text("helper") && scene.has_text("command"); }, {"-t", "6s"});
  const auto helper = static_cast<pid_t>(scene.number_in("helper"));
  const auto command = static_cast<pid_t>(scene.number_in("command"));
  const std::string watchdog = std::to_string(awaited_watchdog_of(dlock.pid()));
  // The watchdog first kills the command's group, and then every other process by its pidfd.
  Process slow({"strace", "-qq", "-o", "/dev/null", "-p", watchdog, "-e", "trace=pidfd_open", "-e",
                "inject=pidfd_open:delay_enter=3000000"});
  const auto traced = [&] {
    return read_file("/proc/" + watchdog + "/status").find("TracerPid:\t0\n") == std::string::npos;
  };
  eventually([&] { return traced() || !slow.running(); });
  if (skip_if(!slow.running(), "strace may not trace here")) return;
  dlock.stop();
  REQUIRE(eventually([&] { return !is_alive(command); }));
  dlock.signal(SIGCONT);
  const Result result = dlock.wait();
  CHECK(result.exit_code == 79);
  CHECK(times(result.err, "COMMAND was stopped") == 1);
  CHECK(!is_alive(helper));
}

namespace {

/// Whether a command that gets the signal while dlock is stopped exits by itself before the lease
/// ends, and dlock then exits with its code.
bool keeps_the_exit_code() {
  RedisScene scene;
  Process dlock = start_guarded(scene, "echo >in; until [ -e go ]; do sleep 0.02; done; exit 3",
                                [&] { return scene.has("in"); }, {"-t", "6s"});
  dlock.stop();
  const Deadline end = lease_end(scene.server, "k");
  scene.touch("go");
  REQUIRE(eventually([&] { return nothing_runs_below(dlock.pid()); }));
  REQUIRE(eventually([&] { return BootClock::now() > end + milliseconds(100); }));
  dlock.signal(SIGCONT);
  return dlock.wait().exit_code == 3;
}

/// The same for a command that leaves a process behind, which outlives the lease.
bool leaves_alone_what_is_left() {
  RedisScene scene;
  Process dlock = start_guarded(
      scene,
      "sleep 61 & echo $! >helper; echo $$ >command; until [ -e go ]; do sleep 0.02; done; exit 3",
      [&] { return scene.has_text("helper") && scene.has_text("command"); }, {"-t", "6s"});
  const auto helper = static_cast<pid_t>(scene.number_in("helper"));
  const auto command = static_cast<pid_t>(scene.number_in("command"));
  dlock.stop();
  const Deadline end = lease_end(scene.server, "k");
  scene.touch("go");
  REQUIRE(eventually([&] { return !is_alive(command); }));
  REQUIRE(eventually([&] { return BootClock::now() > end + milliseconds(100); }));
  dlock.signal(SIGCONT);
  if (dlock.wait().exit_code != 3) return false;
  CHECK(is_alive(helper));
  kill(helper, SIGKILL);
  return true;
}

}  // namespace

TEST_CASE("watchdog: a command that ended by itself before the lease keeps its exit code") {
  CHECK(unless_machine_stalls(keeps_the_exit_code));
}

TEST_CASE("watchdog: what a command that ended by itself leaves behind outlives the lease") {
  CHECK(unless_machine_stalls(leaves_alone_what_is_left));
}

TEST_CASE("watchdog: dlock is stopped in the grace: what the command leaves behind is killed") {
  RedisScene scene;
  Process dlock = start_guarded(
      scene, "sh -c 'trap \"\" TERM; echo $$ >helper; exec sleep 61' & echo $$ >command; wait",
      [&] { return scene.has_text("helper") && scene.has_text("command"); }, {"-t", "6s"});
  const auto helper = static_cast<pid_t>(scene.number_in("helper"));
  const auto command = static_cast<pid_t>(scene.number_in("command"));
  CHECK(scene.run({"release", "-k", "k", "--force"}).exit_code == 0);
  REQUIRE(eventually([&] { return !is_alive(command); }));
  dlock.signal(SIGSTOP);
  CHECK(eventually([&] { return !is_alive(helper); }));
  dlock.signal(SIGCONT);
  CHECK(dlock.wait().exit_code == 79);
}

TEST_CASE("watchdog: dlock is killed: all that the command has started goes with it") {
  takes_the_group_along(RedisScene());
  LocalScene local;
  takes_the_group_along(local);
  CHECK(eventually([&] { return !local.is_held("k"); }));
}

TEST_CASE("watchdog: leaves a renewed lease and what the command leaves behind alone") {
  RedisScene scene;
  Process dlock =
      start_guarded(scene,
                    "setsid sh -c 'until [ -e go ]; do sleep 0.02; done; echo >daemon' & "
                    "echo >in; until [ -e over ]; do sleep 0.02; done",
                    [&] { return scene.has("in"); }, {"-t", "12s"});
  // A watchdog without the renewals would kill before the end of this lease.
  const Deadline end = lease_end(scene.server, "k");
  for (int i = 0; i < 2; ++i) await_renewal(scene.server, "k");
  REQUIRE(eventually([&] { return BootClock::now() > end || !dlock.running(); }));
  scene.touch("over");
  CHECK(dlock.wait().exit_code == 0);
  scene.touch("go");
  CHECK(eventually([&] { return scene.has("daemon"); }));
}

TEST_CASE(
    "watchdog: is a process of its own session that holds nothing open, and goes with dlock") {
  LocalScene scene;
  Process dlock = start_guarded(scene, "echo >in; until [ -e go ]; do sleep 0.02; done",
                                [&] { return scene.has("in"); });
  const pid_t watchdog = awaited_watchdog_of(dlock.pid());
  REQUIRE(watchdog != 0);
  CHECK(stat_of(watchdog)->session == watchdog);
  const std::string fds = "/proc/" + std::to_string(watchdog) + "/fd";
  CHECK(
      eventually([&] { return std::distance(std::filesystem::directory_iterator(fds), {}) == 1; }));
  scene.touch("go");
  CHECK(dlock.wait().exit_code == 0);
  CHECK(!is_alive(watchdog));
}

TEST_CASE("watchdog: under --on-lost ignore it kills nobody") {
  RedisScene scene;
  Process dlock =
      start_guarded(scene, "echo >in; until [ -e go ]; do sleep 0.02; done; exit 3",
                    [&] { return scene.has("in"); }, {"-t", "4s", "--on-lost", "ignore"});
  dlock.stop();
  // A faulty watchdog would have killed some time before.
  REQUIRE(eventually([&] { return !scene.is_held("k"); }));
  dlock.signal(SIGCONT);
  scene.touch("go");
  CHECK(dlock.wait().exit_code == 3);
}

}  // namespace dlock::test
