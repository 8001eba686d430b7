#include <doctest/doctest.h>
#include <signal.h>

#include <string>

#include "support/patient_start.hpp"
#include "support/scene.hpp"

namespace dlock::test {
namespace {

/// A `run` of k, with a lease of `ttl`, whose command has written to the file `name`.
Process started(const RedisScene& scene, const std::string& ttl, const std::string& script,
                const std::string& name) {
  return patient_start(
      [&] {
        return scene.start({"run", "-t", ttl, "-k", "k", "--", "sh", "-c", script});
      },
      [&] { return scene.has_text(name); }, "the command did not begin");
}

}  // namespace

TEST_CASE("a holder is frozen with its command beyond the lease: 79, and the next is undisturbed") {
  RedisScene scene;
  Process late = started(scene, "6s",
                         "echo $$ >pid; echo >>beats; echo $DLOCK_FENCE >late; while :; do echo "
                         ">>beats; sleep 0.005; done",
                         "late");
  const std::int64_t late_fence = scene.number_in("late");
  const auto command = static_cast<pid_t>(scene.number_in("pid"));
  late.signal(SIGSTOP);
  late.wait_until_stopped();
  kill(command, SIGSTOP);
  Process next = scene.start({"run", "-k", "k", "--", "sh", "-c",
                              "echo $DLOCK_FENCE >next; until [ -e go ]; do sleep 0.01; done"});
  const std::int64_t next_fence = scene.number_in("next");
  CHECK(next_fence > late_fence);
  const std::string held = "\"fence\":" + std::to_string(next_fence);
  const std::string before = scene.inspect("k"), beats = read_file(scene.path("beats"));
  CHECK(times(before, held) == 1);
  const Result wrote =
      scene.run({"guard", "--state", "fence", "-c", "true", "--fence", std::to_string(next_fence)});
  CHECK(wrote.exit_code == 0);
  // dlock runs first again; its command stays stopped until dlock has killed it.
  late.signal(SIGCONT);
  const Result result = late.wait();
  CHECK(result.exit_code == 79);
  CHECK(!is_alive(command));
  CHECK(read_file(scene.path("beats")) == beats);
  const std::string after = scene.inspect("k");
  CHECK(times(after, held) == 1);
  CHECK(times(after, "\"holds\":1") == 1);
  const Result too_late = scene.run({"guard", "--state", "fence", "-c", "echo >overwritten",
                                     "--fence", std::to_string(late_fence)});
  CHECK(too_late.exit_code == 79);
  CHECK(!scene.has("overwritten"));
  scene.touch("go");
  CHECK(next.wait().exit_code == 0);
}

TEST_CASE("a command that stands still keeps its lock for as long as dlock runs") {
  RedisScene scene;
  Process holder =
      started(scene, "9s", "echo $$ >pid; until [ -e go ]; do sleep 0.01; done; exit 3", "pid");
  const auto command = static_cast<pid_t>(scene.number_in("pid"));
  kill(command, SIGSTOP);
  const Deadline end = lease_end(scene.server, "k");
  REQUIRE(eventually([&] { return BootClock::now() > end || !scene.is_held("k"); }));
  CHECK(scene.is_held("k"));
  CHECK(scene.run({"run", "-n", "-k", "k", "--", "true"}).exit_code == 75);
  scene.touch("go");
  kill(command, SIGCONT);
  CHECK(holder.wait().exit_code == 3);
}

}  // namespace dlock::test
