#include "base/wait.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <vector>

#include "base/error.hpp"

namespace dlock {

Event::Event() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!fd_) throw_errno("eventfd");
}

void Event::raise() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = write(fd_.get(), &one, sizeof one);
}

void Event::clear() const {
  std::uint64_t count = 0;
  [[maybe_unused]] const auto got = read(fd_.get(), &count, sizeof count);
}

bool Event::raised() const { return readable(fd_.get()); }

AnyOf::AnyOf(std::span<const int> fds) : epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_) throw_errno("epoll_create1");
  for (const int fd : fds) {
    epoll_event event{};
    event.events = EPOLLIN;
    if (fd >= 0 && epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) < 0) throw_errno("epoll_ctl");
  }
}

namespace {

int poll_once(std::span<pollfd> fds, int timeout_ms) {
  const int ready = poll(fds.data(), fds.size(), timeout_ms);
  if (ready < 0 && errno != EINTR) throw_errno("poll");
  return ready;
}

/// poll's timeout runs on CLOCK_MONOTONIC, which stops during a suspend. Up to this length that
/// does no harm, and no timer is needed.
constexpr milliseconds longest_plain_poll{20};

constexpr milliseconds slice_without_timer{500};

int poll_in_slices(std::span<pollfd> fds, Deadline deadline) {
  while (true) {
    const auto left = left_until(deadline);
    const int ready = poll_once(fds, static_cast<int>(std::min(left, slice_without_timer).count()));
    if (ready > 0 || (ready == 0 && left <= slice_without_timer)) return ready;
  }
}

int poll_with_timer(std::span<pollfd> fds, Deadline deadline) {
  const Fd timer(timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK));
  // No descriptor is free; a holder must not end because of that.
  if (!timer) return poll_in_slices(fds, deadline);
  const auto at = deadline.time_since_epoch();
  const auto seconds = std::chrono::floor<std::chrono::seconds>(at);
  itimerspec when{};
  when.it_value.tv_sec = seconds.count();
  when.it_value.tv_nsec = (at - seconds).count();
  if (timerfd_settime(timer.get(), TFD_TIMER_ABSTIME, &when, nullptr) < 0) {
    throw_errno("timerfd_settime");
  }
  std::vector<pollfd> all(fds.begin(), fds.end());
  all.push_back({timer.get(), POLLIN, 0});
  int ready = -1;
  while (ready < 0) ready = poll_once(all, -1);
  std::copy(all.begin(), all.end() - 1, fds.begin());
  return ready - (all.back().revents != 0 ? 1 : 0);
}

}  // namespace

int poll_until(std::span<pollfd> fds, Deadline deadline) {
  while (true) {
    int ready = 0;
    if (deadline == never) {
      ready = poll_once(fds, -1);
    } else {
      const auto left = left_until(deadline);
      if (left > longest_plain_poll) return poll_with_timer(fds, deadline);
      ready = poll_once(fds, static_cast<int>(left.count()));
      if (ready == 0 && left_until(deadline) > milliseconds(0)) continue;
    }
    if (ready >= 0) return ready;
  }
}

bool sleep_until(Deadline deadline, int cancel_fd) {
  pollfd fds[] = {{cancel_fd, POLLIN, 0}};
  return poll_until(fds, deadline) > 0;
}

bool readable(int fd) {
  if (fd < 0) return false;
  pollfd one{fd, POLLIN, 0};
  return poll(&one, 1, 0) > 0;
}

}  // namespace dlock
