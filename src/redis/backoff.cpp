#include "redis/backoff.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/wait.hpp"

namespace dlock {

void Backoff::take() {
  constexpr milliseconds longest{200};
  pollfd fds[] = {{patience_.cancel_fd, POLLIN, 0}};
  if (poll_until(fds, later(BootClock::now(), next_)) > 0) {
    throw Error(ErrorKind::interrupted, "interrupted");
  }
  next_ = std::min(next_ * 2, longest);
}

}  // namespace dlock
