#include "cli/line.hpp"

#include <doctest/doctest.h>

#include <sstream>

namespace dlock::test {
namespace {

constexpr long in_line = 10;
constexpr long number_of_holder = 99;

const char* const long_job =
    "echo $DLOCK_FENCE >>fences; \"$STAMP\" \"$LOG\" start k 99; until [ -e go ]; do "
    "\"$STAMP\" \"$LOG\" beat k 99; sleep 0.02; done; \"$STAMP\" \"$LOG\" end k 99";

const char* const short_job =
    "echo $DLOCK_FENCE >>fences; \"$STAMP\" \"$LOG\" start k $i; \"$STAMP\" \"$LOG\" end k $i";

}  // namespace

Line::Line(const Scene& scene, const std::string& key)
    : holder(patient_start(
          [&] {
            return scene.start(
                {"run", "-t", "15", "--grace", "0.2", "-k", key, "--", "sh", "-c", long_job});
          },
          [&] { return !read_file(scene.log()).empty(); }, "the holder did not begin")) {
  for (long i = 1; i <= in_line; ++i) {
    queue.push_back(scene.queue_up(key, static_cast<std::size_t>(i), short_job, {"-t", "5"}));
  }
}

void was_served_in_order(const Scene& scene, Line& line) {
  for (Process& waiter : line.queue) {
    const Result result = waiter.wait();
    CAPTURE(result.err);
    CHECK(result.exit_code == 0);
  }
  CHECK(overlaps(scene.log()).empty());
  auto order = order_of(scene.log());
  REQUIRE(order.size() == in_line + 1);
  CHECK(order.front() == number_of_holder);
  order.erase(order.begin());
  CHECK(order == first_numbers(in_line));
  std::istringstream lines(read_file(scene.path("fences")));
  long long last = 0;
  long count = 0;
  for (long long fence = 0; lines >> fence; ++count) {
    CHECK(fence > last);
    last = fence;
  }
  CHECK(count == in_line + 1);
}

void await_renewal(const RedisServer& server, const std::string& key) {
  const std::string before = stored_hold(server, key);
  REQUIRE(eventually([&] { return stored_hold(server, key) != before; }));
}

std::optional<Deadline> lease_end_after(const std::function<void()>& harm,
                                        const RedisServer& server, const std::string& key) {
  constexpr milliseconds ttl{6000};
  await_renewal(server, key);
  std::optional<Deadline> end;
  REQUIRE(eventually([&] {
    end = lease_end_if_held(server, key);
    return !end || *end - BootClock::now() > ttl - milliseconds(500);
  }));
  if (!end) return std::nullopt;
  harm();
  const auto harmed = BootClock::now();
  // The next renewal is due two seconds after the start of this one, which took one second at most.
  // On a busy machine, it may have come before the harm; the lease then expires at most a ttl after
  // the harm.
  const bool at_once = *end - harmed > ttl - milliseconds(1000);
  return at_once ? *end : later(harmed, ttl);
}

}  // namespace dlock::test
