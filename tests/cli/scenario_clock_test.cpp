// The wall clock of the host that runs dlock is set while it holds: the holds are verified, and
// nobody is stopped as long as the server answers.

#include <doctest/doctest.h>

#include "support/clock_control.hpp"
#include "support/scene.hpp"

namespace dlock::test {
namespace {

using std::chrono::hours;

/// A holder of "k" under `clock`, with its command running. Its first renewal is due after 2 s.
Process hold_under(const RedisScene& scene, const ShimClock& clock) {
  ProcessOptions options = scene.options();
  options.env.merge(clock.environment());
  Process holder({DLOCK_BINARY, "run", "-k", "k", "-t", "6", "--grace", "0.1", "--status-fd", "1",
                  "--", "sh", "-c",
                  "\"$STAMP\" \"$LOG\" start k 1; until [ -e go ]; do sleep 0.02; "
                  "done; \"$STAMP\" \"$LOG\" end k 1"},
                 options);
  REQUIRE(eventually([&] { return scene.has("log") && !read_file(scene.log()).empty(); }));
  return holder;
}

}  // namespace

TEST_CASE("the host's clock is set while the server answers: the command runs on") {
  RedisScene scene;
  ShimClock clock;
  Process holder = hold_under(scene, clock);
  for (const hours step : {hours(24), hours(-48)}) {
    const Deadline end = lease_end(scene.server, "k");
    clock.advance(step);
    REQUIRE(eventually([&] { return lease_end(scene.server, "k") > end + milliseconds(500); }));
  }
  scene.touch("go");
  const Result result = holder.wait();
  CHECK(result.exit_code == 0);
  CHECK(result.err == "");
}

TEST_CASE("the host's clock is set forward while the server is away: no trust in the lease, 79") {
  RedisScene scene;
  ShimClock clock;
  Process holder = hold_under(scene, clock);
  const Deadline end = lease_end(scene.server, "k");
  scene.server.stop();
  clock.advance(hours(1));
  const Result result = holder.wait();
  // Without the step the command would run until 0.1 s before the end of the lease.
  CHECK(BootClock::now() < end - milliseconds(1000));
  scene.server.cont();
  CHECK(result.exit_code == 79);
  CHECK(times(result.err, "the clock of this host was set forward by ") == 1);
  CHECK(times(result.out, "server unreachable since ") == 1);
}

}  // namespace dlock::test
