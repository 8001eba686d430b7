#pragma once

#include <poll.h>

#include <span>

#include "base/clock.hpp"
#include "base/fd.hpp"

namespace dlock {

/// A flag that wakes a poll: an eventfd, raised by one thread and polled by another. Stays
/// readable until cleared.
class Event {
 public:
  Event();
  void raise() const;
  void clear() const;
  bool raised() const;
  int fd() const { return fd_.get(); }

 private:
  Fd fd_;
};

/// One fd that is readable while any of several is; negative ones are left out.
class AnyOf {
 public:
  explicit AnyOf(std::span<const int> fds);
  int fd() const { return epoll_.get(); }

 private:
  Fd epoll_;
};

/// Waits until one of `fds` is ready or `deadline` has passed on BootClock, also across a suspend;
/// returns how many are ready, 0 for the deadline. Negative fds are skipped. A signal handler does
/// not end the wait.
int poll_until(std::span<pollfd> fds, Deadline deadline);

/// Sleeps until `deadline`, or until `cancel_fd` becomes readable, which it answers with true.
bool sleep_until(Deadline deadline, int cancel_fd);

/// Whether `fd` can be read now; a negative one never can.
bool readable(int fd);

}  // namespace dlock
