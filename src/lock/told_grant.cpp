#include "lock/told_grant.hpp"

#include <algorithm>

#include "lock/store.hpp"

namespace dlock {

std::optional<Grant> told_grant(const DatedAnswer& answer, microseconds granted_at,
                                milliseconds lease, Fence fence) {
  // The message may have waited for this process to be continued. By the place's clock it was sent
  // so long after the answer; if that is more than has passed here, the clock was set.
  const auto after = granted_at - answer.clock;
  const auto now = BootClock::now();
  if (after < microseconds(0) || after > now - answer.sent) return std::nullopt;
  const auto span = std::chrono::floor<milliseconds>(after) + lease;
  const Deadline until = std::min(valid_until(answer.sent, span), later(now, lease));
  if (until - now < lease / 2) return std::nullopt;
  return Grant{fence, Lease{lease, until}, false};
}

}  // namespace dlock
