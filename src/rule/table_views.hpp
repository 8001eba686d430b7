#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "lock/grant.hpp"
#include "rule/lock_table.hpp"

namespace dlock {

/// A stored hold as others see it at `now`: with its lease, and with the process ID of its command
/// as the holder stored it.
Hold hold_from(const HoldEntry& entry, const Now& now);

/// The owners of holds that all live by their leases.
std::vector<Holder> holders_from(const std::vector<HoldEntry>& entries, const Now& now);

/// A stored waiter at `position` in the queue, as others see it at `now`.
Waiter waiter_from(const WaiterEntry& entry, std::size_t position, const Now& now);

/// The last grant of a key that is free, which every engine shows for a week: as long as Redis
/// keeps the entry of a fence.
std::optional<LastGrant> recent_grant(const LockTable& table, const Now& now);

/// The rule's refusal as a client sees it. `holders` are the owners of its holds, of which it names
/// the first few.
Refusal refusal_from(const Refused& refused, std::vector<Holder> holders);

}  // namespace dlock
