#include "base/backoff.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace dlock {

void pause(milliseconds span, const CallOptions& call_options) {
  const auto end = std::min(later(BootClock::now(), span), call_options.deadline);
  if (sleep_until(end, call_options.cancel_fd)) throw_interrupted();
}

milliseconds Backoff::next() { return std::exchange(next_, std::min(next_ * 2, longest_)); }

}  // namespace dlock
