#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "base/error.hpp"
#include "cli/line.hpp"
#include "support/scene.hpp"

// Ways in which a single server may lose keys of a lock, apart from losing all of them.

namespace dlock::test {
namespace {

constexpr const char* until_go = "echo $DLOCK_FENCE >fence; until [ -e go ]; do sleep 0.01; done";

/// A job that holds the key when this returns.
Process held(const RedisScene& scene, const std::string& ttl) {
  return patient_start(
      [&] {
        return scene.start({"run", "-t", ttl, "-k", "k", "--", "sh", "-c", until_go});
      },
      [&] { return scene.has_text("fence"); }, "the job did not begin");
}

std::int64_t next_fence(const RedisScene& scene) {
  const Result result = scene.run({"run", "-q", "-k", "k", "--", "sh", "-c", "echo $DLOCK_FENCE"});
  REQUIRE(result.exit_code == 0);
  return std::stoll(result.out);
}

/// Checks that the holder notices the loss at its next renewal, and that fences go on.
void is_told_of_the_loss(const RedisScene& scene, Process& job) {
  const Result result = job.wait();
  CAPTURE(result.err);
  CHECK(result.exit_code == 79);
  CHECK(times(result.err, "no longer has it") == 1);
  CHECK(next_fence(scene) > scene.number_in("fence"));
}

RedisOptions durable(const std::string& fsync) {
  return {.config = {"appendonly yes", "appendfsync " + fsync}};
}

/// The current append-only file.
std::filesystem::path append_only_file(const RedisServer& server) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(server.dir().path())) {
    const std::string name = entry.path().filename();
    if (name.ends_with(".incr.aof") || name == "appendonly.aof") return entry.path();
  }
  throw Error(ErrorKind::bug, "no append-only file");
}

}  // namespace

TEST_CASE("a server loses the lock: the holder notices at its next renewal, 79, and fences go on") {
  using Requests = std::vector<std::vector<std::string>>;
  for (const Requests& loss : {Requests{{"DEL", "dlock:{k}"}}, Requests{{"FLUSHALL"}},
                               // The last one is refused once all evictable keys are gone.
                               Requests{{"CONFIG", "SET", "maxmemory-policy", "volatile-ttl"},
                                        {"CONFIG", "SET", "maxmemory", "1"},
                                        {"SET", "x", "y"}}}) {
    CAPTURE(loss.front().front());
    const RedisScene scene;
    Process job = held(scene, "12");
    for (const auto& request : loss) scene.server.command(request);
    CHECK(scene.server.command({"EXISTS", "dlock:{k}"}).number == 0);
    scene.server.command({"CONFIG", "SET", "maxmemory", "0"});
    is_told_of_the_loss(scene, job);
  }
}

TEST_CASE("only the last fence is deleted: the lock is kept, and the next fence is larger") {
  RedisScene scene;
  Process job = held(scene, "9");
  scene.server.command({"DEL", "dlock:{k}:fence"});
  const Deadline end = lease_end(scene.server, "k");
  REQUIRE(eventually([&] { return lease_end(scene.server, "k") > end + milliseconds(500); }));
  scene.touch("go");
  CHECK(job.wait().exit_code == 0);
  CHECK(next_fence(scene) > scene.number_in("fence"));
}

TEST_CASE("SCRIPT FLUSH under a holder: its renewal brings the script, and the lock is kept") {
  RedisScene scene;
  Process job = held(scene, "9");
  scene.server.command({"SCRIPT", "FLUSH"});
  await_renewal(scene.server, "k");
  scene.touch("go");
  check_quiet(job.wait());
  CHECK(scene.kept() == scene.may_stay({"k"}));
}

TEST_CASE("a killed server that wrote its log to the page cache still knows the lock") {
  RedisScene scene(durable("everysec"));
  Process job = held(scene, "60");
  scene.server.restart();
  CHECK(scene.run({"run", "-n", "-k", "k", "--", "true"}).exit_code == 75);
  scene.touch("go");
  CHECK(job.wait().exit_code == 0);
}

TEST_CASE("a server loses the tail of its log: the holder notices at its next renewal, 79") {
  RedisScene scene(durable("everysec"));
  REQUIRE(scene.run({"run", "-q", "-k", "other", "--", "true"}).exit_code == 0);
  const auto log = append_only_file(scene.server);
  const auto before = std::filesystem::file_size(log);
  Process job = held(scene, "9");
  scene.server.kill_hard();
  // Cut in the middle of the grant. On a busy machine a renewal may follow it by now.
  std::filesystem::resize_file(log, std::min(std::filesystem::file_size(log), before + 30));
  scene.server.restart();
  is_told_of_the_loss(scene, job);
}

/// The server replies once the data are on the disk.
TEST_CASE("a server with a slow disk: a lease too short for its writes is refused, a longer not") {
  RedisScene scene(durable("always"));
  REQUIRE(scene.run({"run", "-q", "-k", "k", "--", "true"}).exit_code == 0);
  scene.server.command({"DEBUG", "AOF-FLUSH-SLEEP", "400000"});
  // A sixth of that lease is 200 ms. On a busy machine, a client may see the late answer at the
  // same time as its deadline.
  CHECK(in_one_of(3, [&] {
    return scene.run({"run", "-q", "-n", "-t", "1200ms", "-k", "k", "--", "true"}).exit_code == 69;
  }));
  const Result granted = scene.run({"run", "-q", "-t", "30", "-k", "k", "--", "true"});
  CHECK(granted.exit_code == 0);
}

}  // namespace dlock::test
