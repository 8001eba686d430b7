#include "simulator/clock.hpp"

namespace dlock::sim {
namespace {

constexpr std::int64_t million = 1'000'000;
/// The machines have been up for an hour when a schedule begins, on a day in 2027.
constexpr Span boot_at_start = std::chrono::hours(1);
constexpr Span wall_at_start = std::chrono::seconds(1'800'000'000);

}  // namespace

MachineClock::MachineClock(std::int64_t rate_ppm, Span wall_ahead)
    : rate_ppm_(rate_ppm), wall_against_boot_(wall_at_start - boot_at_start + wall_ahead) {}

Span MachineClock::boot(Instant now) const {
  const std::int64_t elapsed = now.time_since_epoch().count();
  return boot_at_start +
         Span(elapsed + elapsed / million * rate_ppm_ + elapsed % million * rate_ppm_ / million);
}

Instant MachineClock::instant_of_boot(Span boot) const {
  const std::int64_t shown = (boot - boot_at_start).count();
  const std::int64_t rate = million + rate_ppm_;
  return Instant(Span(shown / rate * million + shown % rate * million / rate));
}

}  // namespace dlock::sim
