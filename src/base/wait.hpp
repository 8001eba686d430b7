#pragma once

#include <poll.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/fd.hpp"

namespace dlock {

/// A flag that wakes a poll: an eventfd that one thread raises and another polls. It stays readable
/// until cleared.
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

/// An fd that is readable while any of several fds is readable; negative fds are ignored.
class AnyOf {
 public:
  explicit AnyOf(std::span<const int> fds);
  int fd() const { return epoll_.get(); }

 private:
  Fd epoll_;
};

/// Waits until one of `fds` is ready or `deadline` has passed on BootClock, which counts a suspend;
/// returns how many are ready, 0 at the deadline. Negative fds are skipped. A signal handler does
/// not end the wait.
int poll_until(std::span<pollfd> fds, Deadline deadline);

/// Sleeps until `deadline`; returns true early if `cancel_fd` becomes readable.
bool sleep_until(Deadline deadline, int cancel_fd);

/// Whether `fd` can be read now; a negative one never can.
bool readable(int fd);

/// How long a call may block, and the fd that cancels it by becoming readable (-1: none). The call
/// throws Error{unavailable} at the deadline and Error{interrupted} when cancelled.
struct CallOptions {
  Deadline deadline = never;
  int cancel_fd = -1;
  const Event* sent = nullptr;  ///< raised when a request has been sent
};

/// The options for a part of the call that takes at most `span`. They have no `sent`: most parts
/// look up or log in to a server, and do not send the request itself.
inline CallOptions at_most(milliseconds span, const CallOptions& call_options) {
  return {std::min(call_options.deadline, later(BootClock::now(), span)), call_options.cancel_fd};
}

/// The options for one of `tries` attempts that are left. Each gets an equal share of the time, so
/// that an address that never answers leaves time for the others.
inline CallOptions share_of(const CallOptions& call_options, std::size_t tries) {
  if (call_options.deadline == never) return {never, call_options.cancel_fd};
  return at_most(left_until(call_options.deadline) / static_cast<int>(tries), call_options);
}

/// Sleeps for `span`, at most until the deadline of `call_options`. Throws Error{interrupted}.
inline void pause(milliseconds span, const CallOptions& call_options) {
  const auto end = at_most(span, call_options).deadline;
  if (sleep_until(end, call_options.cancel_fd)) throw_interrupted();
}

/// The lengths of the pauses between tries of one request: each is twice as long as the one before,
/// up to `longest`. Every loop that repeats a request has its own Backoff.
class Backoff {
 public:
  constexpr Backoff(milliseconds first, milliseconds longest) : next_(first), longest_(longest) {}

  /// Returns the length of the next pause and doubles the one after it.
  milliseconds next() { return std::exchange(next_, std::min(next_ * 2, longest_)); }
  /// Whether the next pause ends before `deadline`.
  bool fits(Deadline deadline) const { return left_until(deadline) > next_; }

 private:
  milliseconds next_;
  milliseconds longest_;
};

}  // namespace dlock
