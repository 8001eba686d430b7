#include "lock/lease_validity.hpp"

#include <algorithm>

namespace dlock {

milliseconds drift_allowance(milliseconds lease) { return lease / 100 + milliseconds(2); }

Deadline valid_until(Deadline sent, milliseconds lease) {
  lease = std::clamp(lease, -longest_span, longest_span);
  return later(sent, lease - drift_allowance(lease));
}

milliseconds usual_grace(milliseconds ttl) { return std::min(milliseconds(5000), ttl / 3); }

}  // namespace dlock
