#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "support/scene.hpp"

namespace dlock::test {
namespace {

const char* const stamp_start = "\"$STAMP\" \"$LOG\" start k $i";

std::int64_t first_start_ns(const Scene& scene) {
  const auto all = tenures(scene.log());
  REQUIRE(all.size() == 1);
  return all.front().start_ns;
}

milliseconds ms_from(Deadline from, std::int64_t to_ns) {
  return std::chrono::floor<milliseconds>(std::chrono::nanoseconds(to_ns) -
                                          from.time_since_epoch());
}

/// Load on the machine can only delay the next holder, so the median of a few values is enough.
milliseconds median(std::vector<milliseconds> all) {
  std::sort(all.begin(), all.end());
  return all.at(all.size() / 2);
}

/// The time from the end of the command's group to the next start. A helper in that group outlives
/// dlock.
milliseconds from_the_end_of_the_group() {
  const LocalScene scene;
  Process holder =
      scene.start({"run", "-k", "k", "--", "sh", "-c", "sleep 60 & echo $! >left; wait"});
  const auto left = static_cast<pid_t>(scene.number_in("left"));
  Process next = scene.queue_up("k", 1, stamp_start);
  holder.signal(SIGKILL);
  holder.wait();
  // The holder is gone but its group is not: nobody gets the lock, with or without waiting.
  CHECK(scene.run({"run", "-n", "-k", "k", "--", "true"}).exit_code == 75);
  CHECK(is_alive(left));
  CHECK(tenures(scene.log()).empty());
  const auto end = BootClock::now();
  kill(left, SIGKILL);
  CHECK(next.wait().exit_code == 0);
  CHECK(scene.kept() == scene.may_stay({"k"}));
  return ms_from(end, first_start_ns(scene));
}

/// Empty if the next one acquired the lock before the end of the holder's lease was read, or if a
/// busy machine cost the holder such a short lease.
std::optional<milliseconds> from_the_end_of_the_lease() {
  const RedisScene scene;
  Process holder = scene.hold("k", "never", {"-t", "3"});
  Process next =
      scene.start({"run", "-k", "k", "--", "sh", "-c", std::string("i=1; ") + stamp_start});
  REQUIRE(eventually([&] { return scene.waiting("k") == 1 || !next.running(); }));
  if (!next.running() || !holder.running()) return std::nullopt;
  const auto tokens = [&] {
    std::string all;
    for (const Reply& each : scene.server.command({"HKEYS", "dlock:{k}"}).items) {
      all += each.text + "\n";
    }
    return all;
  };
  const std::string held = tokens();
  const Deadline not_before = lease_end(scene.server, "k");
  const auto is_held_by_the_next = [&] {
    if (tokens() == held) return false;
    CHECK(BootClock::now() >= not_before - milliseconds(10));  // read on two clocks
    return true;
  };
  holder.signal(SIGKILL);
  holder.wait();
  if (is_held_by_the_next()) return std::nullopt;
  const Deadline end = lease_end(scene.server, "k");
  if (is_held_by_the_next()) return std::nullopt;
  CHECK(next.wait().exit_code == 0);
  CHECK(scene.kept() == scene.may_stay({"k"}));
  const milliseconds late = ms_from(end, first_start_ns(scene));
  CHECK(late >= milliseconds(-1));
  return late;
}

}  // namespace

TEST_CASE("local: the next runs within 50 ms of the end of a killed holder's last process") {
  std::vector<milliseconds> late;
  for (int i = 0; i < 5; ++i) late.push_back(from_the_end_of_the_group());
  CHECK(median(late) <= stretched(milliseconds(50)));
}

TEST_CASE("Redis: the next runs within 100 ms of the end of a killed holder's lease") {
  std::vector<milliseconds> late;
  for (int tries = 0; late.size() < 3 && tries < 10; ++tries) {
    if (const auto time = from_the_end_of_the_lease()) late.push_back(*time);
  }
  REQUIRE(late.size() == 3);
  CHECK(median(late) <= stretched(milliseconds(100)));
}

}  // namespace dlock::test
