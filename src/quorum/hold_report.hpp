#pragma once

#include <optional>

#include "quorum/nodes.hpp"
#include "quorum/quorum_hold.hpp"

namespace dlock {

/// The refusal of a claim that needs the votes of servers that may have forgotten a lease; nothing
/// where enough others have theirs.
std::optional<Refusal> too_few_votes(const QuorumHold& hold, const Nodes& nodes);

/// How many nodes have the hold, and what is wrong with the others; that is told then.
QuorumMargin margin_of(const QuorumHold& hold, Nodes& nodes);

/// Names each node that does not count for the hold, and why.
[[noreturn]] void throw_no_majority_of(const QuorumHold& hold, const Nodes& nodes);

}  // namespace dlock
