#include "redis/pauses.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/wait.hpp"

namespace dlock {

void Pauses::take() {
  constexpr milliseconds longest{200};
  pollfd fds[] = {{patience_.interrupt_fd, POLLIN, 0}};
  if (poll_until(fds, later(BootClock::now(), next_)) > 0) {
    throw Error(Trouble::interrupted, "interrupted");
  }
  next_ = std::min(next_ * 2, longest);
}

}  // namespace dlock
