#include "lock/lease.hpp"

#include <algorithm>

namespace dlock {

milliseconds drift_allowance(milliseconds lease) { return lease / 100 + milliseconds(2); }

Deadline valid_until(Deadline sent, milliseconds lease) {
  lease = std::clamp(lease, -longest_span, longest_span);
  return later(sent, lease - drift_allowance(lease));
}

}  // namespace dlock
