#pragma once

#include <vector>

#include "lock/grant.hpp"
#include "rule/lock_table.hpp"

namespace dlock {

/// The owners of stored holds, as others see them at `now`.
std::vector<Holder> holders_from(const std::vector<HoldEntry>& entries, const Now& now);

/// The rule's refusal, as a client sees it.
Refusal refusal_from(const Refused& refused, const Now& now);

}  // namespace dlock
