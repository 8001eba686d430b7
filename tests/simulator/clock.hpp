#pragma once

#include <chrono>
#include <cstdint>

#include "base/clock.hpp"

namespace dlock::sim {

using Span = std::chrono::nanoseconds;

/// The true time, which no process can read: it is the same everywhere and runs evenly.
struct TrueTime {
  using rep = std::int64_t;
  using period = std::nano;
  using duration = Span;
  using time_point = std::chrono::time_point<TrueTime>;
  static constexpr bool is_steady = true;
};
using Instant = TrueTime::time_point;

/// The clocks of one machine.
class MachineClock {
 public:
  /// `rate_ppm`: how many microseconds they gain in a second. `wall_ahead`: the error of the wall
  /// clock.
  MachineClock(std::int64_t rate_ppm, Span wall_ahead);

  Span boot(Instant now) const;
  /// CLOCK_MONOTONIC: stands still while the machine is suspended.
  Span monotonic(Instant now) const { return boot(now) - suspended_; }
  Span wall(Instant now) const { return boot(now) + wall_against_boot_; }
  /// The instant at which boot() will show this.
  Instant instant_of_boot(Span boot) const;
  Instant instant_of_wall(Span wall) const { return instant_of_boot(wall - wall_against_boot_); }

  void step_wall(Span by) { wall_against_boot_ += by; }
  void suspended(Span boot_time) { suspended_ += boot_time; }

 private:
  std::int64_t rate_ppm_;
  Span wall_against_boot_;
  Span suspended_{0};
};

}  // namespace dlock::sim
