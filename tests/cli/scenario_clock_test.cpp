// The wall clock of dlock's host is set during a hold: dlock verifies its holds, and stops no
// command as long as the server answers.

#include <doctest/doctest.h>

#include "support/clock_control.hpp"
#include "support/patient_start.hpp"
#include "support/scene.hpp"
#include "support/stall_witness.hpp"

namespace dlock::test {
namespace {

using std::chrono::hours;

/// A holder of "k" under `clock` with a running command. Its first renewal is due after 2 s.
Process hold_under(const RedisScene& scene, const ShimClock& clock) {
  ProcessOptions options = scene.options();
  options.env.merge(clock.environment());
  return patient_start(
      [&] {
        return Process({DLOCK_BINARY, "run", "-k", "k", "-t", "6", "--grace", "0.1", "--status-fd",
                        "1", "--", "sh", "-c",
                        "\"$STAMP\" \"$LOG\" start k 1; until [ -e go ]; do sleep 0.02; "
                        "done; \"$STAMP\" \"$LOG\" end k 1"},
                       options);
      },
      [&] { return !read_file(scene.log()).empty(); }, "the holder did not begin");
}

std::string stored_hold(const RedisScene& scene) {
  const Reply holds = scene.server.command({"HVALS", "dlock:{k}"});
  return holds.items.empty() ? "" : holds.items.front().text;
}

/// The result of a hold whose clock is set while the server answers.
Result held_while_the_clock_is_set() {
  RedisScene scene;
  ShimClock clock;
  Process holder = hold_under(scene, clock);
  for (const hours step : {hours(24), hours(-48)}) {
    std::string before = stored_hold(scene);
    clock.advance(step);
    // The renewal that verifies the hold, and the next one.
    for (int i = 0; i < 2; ++i) {
      REQUIRE(eventually([&] { return stored_hold(scene) != before || !holder.running(); }));
      before = stored_hold(scene);
    }
  }
  scene.touch("go");
  return holder.wait();
}

}  // namespace

TEST_CASE("the host's clock is set while the server answers: the command runs on") {
  Result result = held_while_the_clock_is_set();
  // The server has half a second to confirm the hold. On a busy machine that may be too little, but
  // not again and again.
  for (int tries = 1; result.exit_code == 79 && tries < 3; ++tries) {
    result = held_while_the_clock_is_set();
  }
  check_quiet(result);
}

namespace {

/// Whether the command was stopped long before the end of its lease, because its host's clock was
/// set.
bool is_stopped_by_the_step() {
  RedisScene scene;
  ShimClock clock;
  Process holder = hold_under(scene, clock);
  const Deadline end = lease_end(scene.server, "k");
  scene.server.stop();
  clock.advance(hours(1));
  const Result result = holder.wait();
  // Without the step, the command would run until 0.1 s before the end of the lease.
  const bool long_before = BootClock::now() < end - milliseconds(1000);
  scene.server.cont();
  CHECK(result.exit_code == 79);
  CHECK(times(result.err, "the clock of this host was set forward by ") == 1);
  CHECK(times(result.out, "server unreachable since ") == 1);
  return long_before;
}

}  // namespace

TEST_CASE("the host's clock is set forward while the server is away: no trust in the lease, 79") {
  CHECK(unless_machine_stalls(is_stopped_by_the_step));
}

TEST_CASE("the server's clock jumps forward: the holder is told with its next renewal, 79") {
  ShimClock clock(true);
  RedisScene scene({.env = clock.environment()});
  Process holder = patient_start(
      [&] {
        return scene.start({"run", "-t", "12", "-k", "k", "--", "sh", "-c",
                            "echo $DLOCK_FENCE >fence; while :; do sleep 0.02; done"});
      },
      [&] { return scene.has_text("fence"); }, "the holder did not begin");
  clock.advance(std::chrono::minutes(1));
  Process next = scene.start({"run", "-k", "k", "--", "sh", "-c",
                              "echo $DLOCK_FENCE >next; until [ -e go ]; do sleep 0.01; done"});
  const auto next_fence = scene.number_in("next");
  const Result result = holder.wait();
  CHECK(result.exit_code == 79);
  CHECK(times(result.err, "no longer has it") == 1);
  CHECK(next_fence > scene.number_in("fence"));
  CHECK(times(scene.inspect("k"), "\"fence\":" + std::to_string(next_fence)) == 1);
  scene.touch("go");
  CHECK(next.wait().exit_code == 0);
}

}  // namespace dlock::test
