#pragma once

#include <poll.h>

#include <span>
#include <utility>

#include "base/clock.hpp"

namespace dlock {

/// Owns one file descriptor. Everything dlock opens is close-on-exec: the child inherits what the
/// caller gave, and nothing of ours.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~Fd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset(int fd = -1);

 private:
  int fd_ = -1;
};

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

/// Whether `fd` can be read now.
bool readable(int fd);

}  // namespace dlock
