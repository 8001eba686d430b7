#pragma once

#include <poll.h>

#include <algorithm>
#include <cstddef>
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

/// How long a call may block, and the fd that cancels it by becoming readable (-1: none). At the
/// deadline the call throws Error{unavailable}, cancelled it throws Error{interrupted}.
struct CallOptions {
  Deadline deadline = never;
  int cancel_fd = -1;
  const Event* sent = nullptr;  ///< raised when a request is on its way
};

/// The same for a part of the call, which takes no longer than `span`. Without `sent`: most parts
/// find or log in to a server, and what they send to it is not yet the request.
inline CallOptions at_most(milliseconds span, const CallOptions& call_options) {
  return {std::min(call_options.deadline, later(BootClock::now(), span)), call_options.cancel_fd};
}

/// The options of one try of so many that are left, which all come to the same: each gets its share
/// of the time, so that one which never answers leaves some for the others.
inline CallOptions share_of(const CallOptions& call_options, std::size_t tries) {
  if (call_options.deadline == never) return {never, call_options.cancel_fd};
  return at_most(left_until(call_options.deadline) / static_cast<int>(tries), call_options);
}

}  // namespace dlock
