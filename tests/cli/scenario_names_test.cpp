#include <doctest/doctest.h>

#include <string>

#include "support/scene.hpp"
#include "support/silent_address.hpp"

// The name of a server and its addresses. The names are those of the shim.

namespace dlock::test {
namespace {

RedisOptions by_port() { return {.tcp = true}; }

ProcessOptions naming(const RedisScene& scene, const std::string& host) {
  ProcessOptions options = scene.options();
  options.env["DLOCK_SERVER"] = "redis://" + host + ":" + std::to_string(scene.server.port());
  options.env["LD_PRELOAD"] = DLOCK_NAMES_SHIM;
  options.env["NAMES_SHIM_ADDRESS"] = scene.path("address");
  return options;
}

/// Checks the lock of a server that listens only at the second address of `host`.
void is_acquired_at(const RedisScene& scene, const std::string& host) {
  const Result result = dlock({"run", "-n", "-k", "k", "--", "echo", "ran"}, naming(scene, host));
  check_ran(result, "ran\n");
  CHECK(result.err == "");
}

}  // namespace

TEST_CASE("a name with two addresses of which the first is dead: the lock is acquired") {
  is_acquired_at(RedisScene(by_port()), "two.test");
}

TEST_CASE("a name with two addresses of which the first is silent: the lock is acquired") {
  const RedisScene scene(by_port());
  const SilentAddress silent(scene.server.port());
  is_acquired_at(scene, "silent.test");
}

TEST_CASE("a name whose first address is one of IPv6 and dead: the lock is acquired") {
  is_acquired_at(RedisScene(by_port()), "six.test");
}

TEST_CASE("the name of the server leads elsewhere: a waiter looks it up again and follows") {
  RedisScene scene(by_port());
  write_file(scene.path("address"), "127.0.0.1");
  Process holder = scene.hold("k", "go", {"-t", "60"});
  Process waiter =
      start_dlock({"run", "-k", "k", "--", "touch", "ran"}, naming(scene, "moved.test"));
  REQUIRE(eventually([&] { return scene.waiting("k") == 1; }));
  const RedisServer other({.config = {"bind 127.0.0.2"}, .port = scene.server.port()});
  write_file(scene.path("address"), "127.0.0.2");
  scene.server.kill_hard();
  CHECK(waiter.wait().exit_code == 0);
  CHECK(scene.has("ran"));
  holder.kill_all();
}

}  // namespace dlock::test
