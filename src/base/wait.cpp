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

/// A timer on BootClock, because poll's own timeout runs on CLOCK_MONOTONIC, which stops during a
/// suspend. Empty if no descriptor is free.
Fd timer_at(Deadline deadline) {
  Fd timer(timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK));
  const auto at = deadline.time_since_epoch();
  const auto seconds = std::chrono::floor<std::chrono::seconds>(at);
  itimerspec when{};
  when.it_value.tv_sec = seconds.count();
  when.it_value.tv_nsec = (at - seconds).count();
  if (timer) timerfd_settime(timer.get(), TFD_TIMER_ABSTIME, &when, nullptr);
  return timer;
}

}  // namespace

int poll_until(std::span<pollfd> fds, Deadline deadline) {
  // A wait up to this length needs no timer: a suspend delays its end by at most as much.
  constexpr milliseconds longest_plain_poll{20};
  // A holder must not end because no descriptor is free for a timer.
  constexpr milliseconds slice_without_timer{500};
  const bool is_long = deadline != never && left_until(deadline) > longest_plain_poll;
  const Fd timer = is_long ? timer_at(deadline) : Fd();
  std::vector<pollfd> all(fds.begin(), fds.end());
  all.push_back({timer.get(), POLLIN, 0});
  while (true) {
    const auto slice = std::min(left_until(deadline), slice_without_timer);
    const bool by_event = timer || deadline == never;
    int ready = poll(all.data(), all.size(), by_event ? -1 : static_cast<int>(slice.count()));
    if (ready < 0 && errno != EINTR) throw_errno("poll");
    if (ready > 0 && all.back().revents != 0) --ready;
    if (ready <= 0 && BootClock::now() < deadline) continue;
    std::copy(all.begin(), all.end() - 1, fds.begin());
    return std::max(ready, 0);
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
