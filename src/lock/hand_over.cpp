#include "lock/hand_over.hpp"

#include <algorithm>

#include "lock/store.hpp"

namespace dlock {

/// Longer than a message takes.
constexpr milliseconds late{500};

std::optional<Grant> handed_over_grant(const DatedAnswer& answer, const HandOver& told,
                                       milliseconds least_left) {
  // The message may have waited for this process to be continued. By the place's clock it was sent
  // so long after the answer; if that is more than has passed here, the clock was set.
  const auto after = told.at - answer.clock;
  const auto now = BootClock::now();
  if (after < microseconds(0) || after > now - answer.sent) return std::nullopt;
  const auto span = std::chrono::floor<milliseconds>(after) + told.lease;
  Deadline until = std::min(valid_until(answer.sent, span), later(now, told.lease));
  if (until - now < least_left) return std::nullopt;
  // This process stood still meanwhile, and somebody may have evicted it.
  if (now - answer.sent - after > late) until = std::min(until, later(now, told.lease / 3));
  return Grant{told.fence, Lease{told.lease, until}, false};
}

}  // namespace dlock
