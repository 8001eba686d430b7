#pragma once

#include "base/clock.hpp"
#include "base/fd.hpp"

namespace dlock {

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
