#include <doctest/doctest.h>
#include <signal.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/place.hpp"
#include "support/fleet.hpp"
#include "support/patient_start.hpp"
#include "support/recorded_process.hpp"

namespace dlock::test {
namespace {

using nlohmann::json;

std::string token_of(const Scene& scene, const std::string& key) {
  const Result result = scene.run({"acquire", "-t", "30", "-k", key});
  CAPTURE(result.err);
  REQUIRE(result.exit_code == 0);
  return result.out.substr(0, result.out.find('\n'));
}

std::string majority_stored_hold(const RedisServer& server, const std::string& key) {
  const Reply holds = server.command({"HVALS", "dlock:{" + key + "}"});
  for (const Reply& hold : holds.items) {
    if (!hold.text.starts_with("t ")) return hold.text;
  }
  return "";
}

std::size_t held_on(const Fleet& fleet, const std::string& key) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < fleet.size(); ++i) {
    if (!majority_stored_hold(fleet.server(i), key).empty()) ++count;
  }
  return count;
}

int exit_code(const Scene& scene, const std::vector<std::string>& arguments) {
  return scene.run(arguments).exit_code;
}

/// A slow server gets a release after the deciding majority; no lease ends that soon.
bool becomes_free(const Scene& scene, const std::string& key) {
  return eventually(
      [&] {
        return exit_code(scene, {"inspect", "-q", key}) == 1;
      },
      milliseconds(10'000));
}

void acquires_renews_and_releases(const FleetScene& scene) {
  const std::string token = token_of(scene, "t");
  CHECK(held_on(scene.fleet, "t") >= 3);
  CHECK(exit_code(scene, {"run", "-n", "-k", "t", "--", "true"}) == 75);
  CHECK(exit_code(scene, {"inspect", "-q", "t"}) == 0);
  CHECK(exit_code(scene, {"renew", "-k", "t", "--token", token, "-t", "40"}) == 0);
  const auto state = json::parse(scene.inspect("t"));
  CHECK(state["holders"].size() == 1);
  CHECK(state["holders"][0]["lease_left_ms"] > 30'000);
  CHECK(exit_code(scene, {"release", "-k", "t", "--token", token}) == 0);
  CHECK(exit_code(scene, {"release", "-k", "t", "--token", token}) == 79);
  CHECK(exit_code(scene, {"renew", "-k", "t", "--token", token}) == 79);
  CHECK(becomes_free(scene, "t"));
  CHECK(exit_code(scene, {"acquire", "-t", "61", "-k", "t"}) == 64);
}

void takes_several_keys_or_none(const FleetScene& scene) {
  const std::string token = token_of(scene, "y");
  CHECK(exit_code(scene, {"run", "-n", "-k", "x", "-k", "y", "--", "true"}) == 75);
  CHECK(exit_code(scene, {"release", "-k", "y", "--token", token}) == 0);
  const Result both =
      scene.run({"run", "-n", "-k", "x", "-k", "y", "--", "sh", "-c", "echo $DLOCK_FENCE"});
  CHECK(both.exit_code == 0);
  CHECK(times(both.out, ",") == 1);
}

void throws_out(const FleetScene& scene) {
  const std::string token = token_of(scene, "f");
  const auto fence = json::parse(scene.inspect("f"))["holders"][0]["fence"].dump();
  CHECK(exit_code(scene, {"release", "--force", "--fence", "1", "-k", "f"}) == 79);
  const Result thrown =
      scene.run({"release", "--force", "--reason", "stuck", "--fence", fence, "-k", "f"});
  CHECK(thrown.exit_code == 0);
  CHECK(eventually([&] { return held_on(scene.fleet, "f") == 0; }));
  const Result gone = scene.run({"renew", "-k", "f", "--token", token});
  check_says(gone, 79, "f is not held by this token: evicted by ");
  CHECK(holds(gone.err, ": stuck\n"));
  CHECK(exit_code(scene, {"run", "-n", "-k", "f", "--", "true"}) == 0);
}

/// Two holders with only a majority each would leave room for a third.
void renews_a_semaphore_by_the_votes_it_takes(const FleetScene& scene) {
  const Result taken = scene.run({"acquire", "-t", "30", "--limit", "2", "-k", "s"});
  REQUIRE(taken.exit_code == 0);
  const std::string token = taken.out.substr(0, taken.out.find('\n'));
  CHECK(exit_code(scene, {"renew", "-k", "s", "--token", token}) == 0);
  for (std::size_t i = 0; i < 5 && held_on(scene.fleet, "s") > 3; ++i) {
    scene.fleet.server(i).command({"DEL", "dlock:{s}"});
  }
  CHECK(exit_code(scene, {"renew", "-k", "s", "--token", token}) == 79);
}

void readers_and_a_semaphore_take_turns(const FleetScene& scene) {
  Process reader = scene.hold("turns", "read", {"-s"});
  CHECK(exit_code(scene, {"run", "-q", "-n", "--limit", "3", "-k", "turns", "--", "true"}) == 75);
  scene.touch("read");
  CHECK(reader.wait().exit_code == 0);
  Process owner = scene.hold("turns", "work", {"--limit", "3"});
  CHECK(exit_code(scene, {"run", "-n", "--limit", "3", "-k", "turns", "--", "true"}) == 0);
  CHECK(exit_code(scene, {"run", "-q", "-n", "-s", "-k", "turns", "--", "true"}) == 75);
  scene.touch("work");
  CHECK(owner.wait().exit_code == 0);
}

}  // namespace

TEST_CASE(
    "majority: a lock is acquired, renewed, evicted and released over five servers as on one") {
  const FleetScene scene;
  acquires_renews_and_releases(scene);
  takes_several_keys_or_none(scene);
  throws_out(scene);
  renews_a_semaphore_by_the_votes_it_takes(scene);
  readers_and_a_semaphore_take_turns(scene);
}

TEST_CASE("majority: a server that was away gets the hold back, and inspect says where it stands") {
  const FleetScene scene;
  const auto urls = scene.fleet.urls();
  scene.fleet.proxy(4).refuse(true);
  Process job = scene.hold("k", "go", {"-v", "-t", "12"});
  // A late answer is missing from one look, and present in the next.
  const auto is_held_on = [&](int servers) {
    const std::string said = "held on " + std::to_string(servers) + " of 5 servers";
    return eventually([&] {
      if (times(scene.run({"inspect", "k"}).out, said) != 1) return false;
      const json state = json::parse(scene.inspect("k"), nullptr, false);
      if (state.is_discarded()) return false;
      const json& holders = state.at("holders");
      return holders.size() == 1 && holders[0].at("held_on") == servers &&
             holders[0].at("servers") == 5;
    });
  };
  // The job began as soon as three servers granted the lock.
  CHECK(is_held_on(4));
  CHECK(eventually([&] { return times(job.err(), "k is held on 4 of 5 servers") > 0; }));
  CHECK(times(job.err(), urls[4]) > 0);
  scene.fleet.proxy(4).heal();
  CHECK(eventually([&] { return !majority_stored_hold(scene.fleet.server(4), "k").empty(); }));
  CHECK(eventually([&] { return times(job.err(), "k is held on 5 of 5 servers") > 0; }));
  CHECK(is_held_on(5));
  scene.touch("go");
  CHECK(job.wait().exit_code == 0);
  CHECK(eventually([&] { return held_on(scene.fleet, "k") == 0; }));
}

/// The state of a server an hour after it lost its memory.
void forget_all(const RedisServer& server) {
  server.command({"FLUSHALL"});
  record_process_of(server);
}

TEST_CASE("majority: a server that forgot gets back what a waiter and a script hold") {
  const FleetOptions options{.servers = 3};
  const FleetScene scene(options);
  const Fleet& fleet = scene.fleet;
  Process other = scene.hold("b", "go", {"-t", "60"});
  // The job began as soon as two servers granted the lock: if server 0, which will forget, were one
  // of only two, others could get a majority.
  REQUIRE(eventually([&] { return held_on(fleet, "b") == 3; }));
  Process waiter = patient_start(
      [&] {
        return scene.start({"run", "-t", "12", "-k", "a", "-k", "b", "--", "echo", "ran"});
      },
      [&] { return scene.waiting("b") == 1; }, "it did not wait");
  Process script = patient_start(
      [&] {
        return scene.start_shell(
            "T=$(\"$DLOCK\" acquire -t 12 -k c --attach $$) || exit; echo in; until [ -e go ]; do "
            "sleep 0.01; done");
      },
      says_in, "not acquired");
  const auto both_stand_on = [&](std::size_t server) {
    const RedisServer& one = fleet.server(server);
    return !majority_stored_hold(one, "a").empty() && !majority_stored_hold(one, "c").empty();
  };
  REQUIRE(eventually([&] {
    return both_stand_on(0) && both_stand_on(1) && both_stand_on(2) && scene.waiting("b") == 1;
  }));
  forget_all(fleet.server(0));
  CHECK(eventually([&] { return both_stand_on(0); }));
  // Without server 0, too few would be left.
  fleet.proxy(2).refuse(true);
  fleet.proxy(2).close_connections();
  for (int i = 0; i < 3; ++i) {
    const std::string before = majority_stored_hold(fleet.server(0), "a");
    CHECK(eventually([&] { return majority_stored_hold(fleet.server(0), "a") != before; }));
  }
  scene.touch("go");
  check_ran(waiter.wait(), "ran\n");
  CHECK(other.wait().exit_code == 0);
  CHECK(script.wait().exit_code == 0);
}

TEST_CASE("majority: a server that hears nothing any more is left behind by a release") {
  const FleetScene scene;
  Process job = scene.hold("k", "go", {"-t", "30"});
  REQUIRE(eventually([&] { return held_on(scene.fleet, "k") == 5; }));
  scene.fleet.proxy(0).black_hole(Direction::requests);
  scene.touch("go");
  const Result result = job.wait();
  CHECK(result.exit_code == 0);
  CHECK(eventually([&] { return held_on(scene.fleet, "k") == 1; }));
  CHECK(exit_code(scene, {"run", "-n", "-k", "k", "--", "true"}) == 0);
  CHECK(becomes_free(scene, "k"));
}

}  // namespace dlock::test
