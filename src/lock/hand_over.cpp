#include "lock/hand_over.hpp"

#include <algorithm>

#include "lock/store.hpp"

namespace dlock {

std::optional<Grant> handed_over_grant(const DatedAnswer& answer, const HandOver& told,
                                       milliseconds least_left) {
  // The message may have waited for this process to be continued. By the place's clock it was sent
  // so long after the answer; if that is more than has passed here, the clock was set.
  const auto after = told.at - answer.clock;
  const auto now = BootClock::now();
  if (after < microseconds(0) || after > now - answer.sent) return std::nullopt;
  const auto span = std::chrono::floor<milliseconds>(after) + told.lease;
  const Deadline until = std::min(valid_until(answer.sent, span), later(now, told.lease));
  if (until - now < least_left) return std::nullopt;
  return Grant{told.fence, Lease{told.lease, until}, false};
}

}  // namespace dlock
