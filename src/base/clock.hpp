#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "base/fd.hpp"

namespace dlock {

using std::chrono::microseconds;
using std::chrono::milliseconds;

/// The clock of every lease and deadline. CLOCK_BOOTTIME, because CLOCK_MONOTONIC (and with it
/// std::chrono::steady_clock) stands still while the machine is suspended, and a lease does not.
struct BootClock {
  using rep = std::int64_t;
  using period = std::nano;
  using duration = std::chrono::nanoseconds;
  using time_point = std::chrono::time_point<BootClock>;
  static constexpr bool is_steady = true;
  static time_point now() noexcept;
};

/// A moment on this machine's BootClock; means nothing on another machine.
using Deadline = BootClock::time_point;
constexpr Deadline never = Deadline::max();

/// `from + span`, staying at `never` where the sum would overflow.
Deadline later(Deadline from, std::chrono::nanoseconds span);

/// The time that is left until `deadline`, rounded up to whole milliseconds; zero once it has
/// passed.
milliseconds left_until(Deadline deadline);

/// How long ago `then` was, rounded down to whole milliseconds.
milliseconds passed_since(Deadline then);

/// The wall clock, for what people read and for fences; never for a deadline.
using WallTime = std::chrono::sys_time<microseconds>;
WallTime wall_now();
/// The time that the wall clock, as it is set now, showed at `then`.
WallTime wall_at(Deadline then);

/// `2026-01-02T03:04:05.678Z`.
std::string iso8601(WallTime time);

/// Notices that the wall clock was set while BootClock went on evenly: by somebody, by NTP, or by
/// the agent of a virtual machine that was paused behind the back of all its clocks. Only in the
/// last case did time pass that BootClock does not count, and from inside nothing tells which it
/// was (https://man7.org/linux/man-pages/man2/timerfd_create.2.html, TFD_TIMER_CANCEL_ON_SET).
class ClockSteps {
 public:
  ClockSteps();
  /// Readable once the wall clock has been set: ask taken(). -1 where there are no fds to spare.
  int fd() const { return timer_.get(); }
  /// How far the wall clock has moved against BootClock since it was asked last; leaves fd()
  /// unreadable. A clock that is merely slewed takes BootClock along.
  std::chrono::nanoseconds taken();

 private:
  Fd timer_;
  std::chrono::nanoseconds apart_;
};

}  // namespace dlock
