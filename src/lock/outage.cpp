#include "lock/outage.hpp"

#include <algorithm>

#include "base/random.hpp"
#include "base/wait.hpp"

namespace dlock {

void Outage::go_on(const Error& why, Deadline until, int cancel_fd) {
  constexpr milliseconds longest_pause{1000};
  if (!since_) {
    since_ = BootClock::now();
    listener_.server_lost(why.what());
  }
  pollfd fds[] = {{cancel_fd, POLLIN, 0}};
  const auto pause_end = later(BootClock::now(), pause_ / 2 + random_up_to(pause_ / 2));
  poll_until(fds, std::min(pause_end, until));
  pause_ = std::min(pause_ * 2, longest_pause);
}

void Outage::end() {
  if (!since_) return;
  listener_.server_back(passed_since(*since_));
  since_.reset();
  pause_ = first_pause;
}

}  // namespace dlock
