#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/chance.hpp"
#include "support/fleet.hpp"
#include "support/scene.hpp"

namespace dlock::test {
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

void opposite_orders_do_not_dead_lock(const Scene& scene, int usually = 100) {
  const int rounds = runs_of_this_test(usually);
  const std::string work = "'\"$STAMP\" \"$LOG\" start ab; \"$STAMP\" \"$LOG\" end ab' || exit 1";
  const std::string loop = "for i in $(seq " + std::to_string(rounds) + "); do \"$DLOCK\" run -q ";
  std::vector<Process> both;
  both.push_back(scene.start_shell(loop + "-k a -k b -- sh -c " + work + "; done"));
  both.push_back(scene.start_shell(loop + "-k b -k a -- sh -c " + work + "; done"));
  finish_well(both);
  CHECK(tenures(scene.log()).size() == static_cast<std::size_t>(2 * rounds));
  CHECK(overlaps(scene.log()).empty());
  CHECK(leaves_nothing(scene, {"a", "b"}));
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

void writers_are_alone(const Scene& scene) {
  const auto loop = [](const std::string& flag, const std::string& key) {
    return "for i in 1 2 3 4 5; do \"$DLOCK\" run -q -k rw " + flag +
           " -- sh -c '\"$STAMP\" \"$LOG\" start " + key +
           "; sleep 0.01; \"$STAMP\" \"$LOG\" end " + key + "' || exit 1; done";
  };
  auto processes = start_shells(scene, 8, loop("-s", "r"));
  for (auto& writer : start_shells(scene, 3, loop("-x", "w"))) {
    processes.push_back(std::move(writer));
  }
  finish_well(processes);
  const auto all = tenures(scene.log());
  CHECK(all.size() == 55);
  for (const QuorumHold& writer : all) {
    if (writer.key != "w") continue;
    for (const QuorumHold& other : all) {
      const bool apart = other.end_ns <= writer.start_ns || other.start_ns >= writer.end_ns;
      CHECK((apart || &other == &writer));
    }
  }
  CHECK(most_at_once(scene.log(), "r") > 1);
  CHECK(scene.kept() == scene.may_stay({"rw"}));
}

}  // namespace

TEST_CASE("local: twenty processes count to a thousand under one lock") {
  twenty_processes_count_to_a_thousand(LocalScene());
}

TEST_CASE("Redis: twenty processes count to a thousand under one lock") {
  twenty_processes_count_to_a_thousand(RedisScene());
}

TEST_CASE("local: two loops that name the same keys in opposite orders do not dead-lock") {
  opposite_orders_do_not_dead_lock(LocalScene());
}

TEST_CASE("Redis: two loops that name the same keys in opposite orders do not dead-lock") {
  opposite_orders_do_not_dead_lock(RedisScene());
}

TEST_CASE("three servers: two loops that name the same keys in opposite orders do not dead-lock") {
  opposite_orders_do_not_dead_lock(FleetScene({.servers = 3, .direct = true}), 40);
}

TEST_CASE("local: of twelve processes three are in a semaphore of three, never more") {
  three_at_a_time(LocalScene());
}

TEST_CASE("Redis: of twelve processes three are in a semaphore of three, never more") {
  three_at_a_time(RedisScene());
}

TEST_CASE("local: readers are in together and a writer is alone") {
  writers_are_alone(LocalScene());
}

TEST_CASE("Redis: readers are in together and a writer is alone") {
  writers_are_alone(RedisScene());
}

}  // namespace dlock::test
