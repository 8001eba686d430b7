#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <vector>

#include "lock/store.hpp"
#include "support/chance.hpp"
#include "support/fleet.hpp"
#include "support/one_of_tries.hpp"
#include "support/stretched.hpp"

namespace dlock::test {
namespace {

void silence(const FleetScene& scene, std::size_t server) {
  scene.fleet.proxy(server).black_hole(Direction::requests);
  scene.fleet.proxy(server).black_hole(Direction::replies);
}

/// The time that `shells` shells take to run `true` `runs` times each with one key; nothing if one
/// of them found too few servers in time.
std::optional<milliseconds> time_for(const FleetScene& scene, int shells, int runs) {
  bool served = true;
  const auto begun = BootClock::now();
  std::vector<Process> all;
  for (int i = 0; i < shells; ++i) {
    all.push_back(scene.start_shell("for i in $(seq " + std::to_string(runs) +
                                    "); do \"$DLOCK\" run -q -k q -- true || exit 1; done"));
  }
  for (Process& each : all) {
    const Result result = each.wait(milliseconds(110'000));
    CHECK(result.signal == 0);
    served = served && result.exit_code == 0 && result.err == "";
  }
  if (!served) return std::nullopt;
  return std::chrono::duration_cast<milliseconds>(BootClock::now() - begun);
}

/// Does not count tombstones.
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
  // All runs together take little longer than a single one would if it waited for the silent
  // server.
  CHECK(in_one_of(3, [&] {
    const FleetScene scene(three);
    silence(scene, 2);
    const auto taken = time_for(scene, 3, 8);
    return taken && *taken < stretched(silence_of_a_dead_server + milliseconds(3000));
  }));
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
