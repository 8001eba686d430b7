#include <doctest/doctest.h>

#include "quorum/nodes.hpp"

namespace dlock {
namespace {

using std::chrono::seconds;

constexpr Deadline boot_start{std::chrono::hours(1)};
constexpr microseconds wall_start = seconds(1'800'000'000);

/// A reading of a clock with the error `wrong`, `after` the start. The exchange took `took` in all,
/// and `there` for the request.
ClockReading reading(microseconds wrong, milliseconds after = milliseconds(0),
                     milliseconds took = milliseconds(2), milliseconds there = milliseconds(1)) {
  const Deadline sent = boot_start + after;
  return {wall_start + after + there + wrong, sent, sent + took};
}

/// The error of the median, `after` the start.
std::optional<microseconds> wrong(const ServerClocks& clocks, milliseconds after) {
  const auto median = clocks.median(boot_start + after);
  return median ? std::optional(*median - wall_start - after) : std::nullopt;
}

}  // namespace

TEST_CASE("the clock of several servers is the median of those that are known, and goes on") {
  ServerClocks clocks(3);
  CHECK(!clocks.median(boot_start));
  clocks.note(0, reading(seconds(3600)));
  CHECK(wrong(clocks, milliseconds(0)) == seconds(3600));
  clocks.note(1, reading(seconds(-3600)));
  CHECK(wrong(clocks, milliseconds(0)) == seconds(-3600));
  clocks.note(2, reading(milliseconds(5)));
  CHECK(wrong(clocks, milliseconds(0)) == milliseconds(5));
  CHECK(wrong(clocks, milliseconds(60'000)) == milliseconds(5));
  CHECK(wrong(clocks, milliseconds(-60'000)) == milliseconds(5));
  clocks.note(0, reading(milliseconds(1), milliseconds(10)));
  CHECK(wrong(clocks, milliseconds(10)) == milliseconds(1));
}

TEST_CASE("a reading that took long replaces a quick one only once clocks may have gone apart") {
  ServerClocks clocks(1);
  clocks.note(0, reading({}));
  const auto slow = [](milliseconds after) {
    return reading({}, after, milliseconds(40), milliseconds(39));
  };
  clocks.note(0, slow(milliseconds(1000)));
  CHECK(wrong(clocks, milliseconds(2000)) == milliseconds(0));
  clocks.note(0, slow(milliseconds(100'000)));
  CHECK(wrong(clocks, milliseconds(100'000)) == milliseconds(19));
  clocks.note(0, reading({}, milliseconds(100'100)));
  CHECK(wrong(clocks, milliseconds(100'100)) == milliseconds(0));
}

}  // namespace dlock
