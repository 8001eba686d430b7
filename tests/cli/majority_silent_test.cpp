#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "lock/store.hpp"
#include "support/chance.hpp"
#include "support/fleet.hpp"

namespace dlock::test {
namespace {

void silence(const FleetScene& scene, std::size_t server) {
  scene.fleet.proxy(server).black_hole(Direction::requests);
  scene.fleet.proxy(server).black_hole(Direction::replies);
}

/// How long it takes so many shells to run `true` so often under one key.
milliseconds time_for(const FleetScene& scene, int shells, int runs) {
  const auto begun = BootClock::now();
  std::vector<Process> all;
  for (int i = 0; i < shells; ++i) {
    all.push_back(scene.start_shell("for i in $(seq " + std::to_string(runs) +
                                    "); do \"$DLOCK\" run -q -k q -- true || exit 1; done"));
  }
  for (Process& each : all) {
    const Result result = each.wait(milliseconds(110'000));
    CHECK(result.exit_code == 0);
    CHECK(result.err == "");
  }
  return std::chrono::duration_cast<milliseconds>(BootClock::now() - begun);
}

/// All at once, without waiting: how many ran.
std::ptrdiff_t winners(const FleetScene& scene, const std::string& key, int count) {
  std::vector<Process> all;
  for (int i = 0; i < count; ++i) {
    all.push_back(scene.start({"run", "-q", "-n", "-k", key, "--", "sh", "-c",
                               "until [ -e over-" + key + " ]; do sleep 0.01; done"}));
  }
  const auto ended = [&] {
    return std::count_if(all.begin(), all.end(), [](const Process& p) { return !p.running(); });
  };
  CHECK(eventually([&] { return ended() == count - 1; }));
  scene.touch("over-" + key);
  return std::count_if(all.begin(), all.end(), [](Process& p) { return p.wait().exit_code == 0; });
}

/// Tombstones do not count.
std::size_t locks_left(const FleetScene& scene) {
  std::size_t left = 0;
  for (std::size_t i = 0; i < scene.fleet.size(); ++i) {
    const RedisServer& server = scene.fleet.server(i);
    for (const Reply& key : server.command({"KEYS", "dlock:{*}"}).items) {
      if (!key.text.ends_with('}')) continue;
      for (const Reply& hold : server.command({"HVALS", key.text}).items) {
        if (!hold.text.starts_with("t ")) ++left;
      }
    }
  }
  return left;
}

}  // namespace

TEST_CASE("majority: a silent server keeps no waiter from its turn") {
  FleetOptions three;
  three.servers = 3;
  const FleetScene scene(three);
  silence(scene, 2);
  // Less than the time for which one who answers nothing is waited for otherwise.
  CHECK(time_for(scene, 3, 8) < silence_of_a_dead_server);
}

TEST_CASE("majority: where two of five are down, exactly one of those who do not wait runs") {
  const FleetScene scene;
  for (const std::size_t i : {3, 4}) scene.fleet.proxy(i).refuse(true);
  for (int i = 0; i < runs_of_this_test(12); ++i)
    CHECK(winners(scene, "k" + std::to_string(i), 3) == 1);
}

TEST_CASE("majority: what one process takes and another gives back stays on no server") {
  const FleetScene scene;
  for (int i = 0; i < runs_of_this_test(30); ++i) {
    const std::string key = "k" + std::to_string(i);
    const Result taken = scene.run({"acquire", "-k", key, "-t", "60s"});
    REQUIRE(taken.exit_code == 0);
    const std::string token = taken.out.substr(0, taken.out.find('\n'));
    CHECK(scene.run({"release", "-k", key, "--token", token}).exit_code == 0);
  }
  CHECK(eventually([&] { return locks_left(scene) == 0; }));
}

}  // namespace dlock::test
