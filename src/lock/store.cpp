#include "lock/store.hpp"

namespace dlock {

bool Store::command_started(const Claim&, pid_t) { return true; }

bool Store::live_with(const Claim&, pid_t) { return true; }

void Store::leave_to(pid_t) {}

milliseconds drift_allowance(milliseconds lease) { return lease / 100 + milliseconds(2); }

Deadline valid_until(Deadline sent, milliseconds lease) {
  return later(sent, lease - drift_allowance(lease));
}

}  // namespace dlock
