#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace dlock {

using std::chrono::microseconds;
using std::chrono::milliseconds;

/// The clock of every lease and deadline. It reads CLOCK_BOOTTIME, because leases also expire while
/// the machine is suspended; CLOCK_MONOTONIC (std::chrono::steady_clock) then stands still.
struct BootClock {
  using rep = std::int64_t;
  using period = std::nano;
  using duration = std::chrono::nanoseconds;
  using time_point = std::chrono::time_point<BootClock>;
  static constexpr bool is_steady = true;
  static time_point now() noexcept;
};

/// A moment on this machine's BootClock; it has no meaning on another machine.
using Deadline = BootClock::time_point;
constexpr Deadline never = Deadline::max();

/// Returns `from + span`, or `never` if the sum would overflow.
Deadline later(Deadline from, std::chrono::nanoseconds span);

/// The time left until `deadline`, rounded up to whole milliseconds; zero after it has passed.
milliseconds left_until(Deadline deadline);

/// How long ago `then` was, rounded down to whole milliseconds.
milliseconds passed_since(Deadline then);

/// The wall clock, used for display and for fences, never for deadlines.
using WallTime = std::chrono::sys_time<microseconds>;
WallTime wall_now();
/// The wall-clock time of `then`, by the clock's present setting.
WallTime wall_at(Deadline then);

/// `2026-01-02T03:04:05.678Z`.
std::string iso8601(WallTime time);

}  // namespace dlock
