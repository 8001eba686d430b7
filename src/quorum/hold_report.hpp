#pragma once

#include <optional>

#include "quorum/nodes.hpp"
#include "quorum/quorum_hold.hpp"

namespace dlock {

/// The refusal of a claim that lacks votes because too many nodes are in quarantine; nothing if
/// enough other nodes have theirs.
std::optional<Refusal> too_few_votes(const QuorumHold& hold, const Nodes& nodes);

/// Counts the nodes that have the hold and says what is wrong with the others. These errors then
/// count as reported.
QuorumMargin margin_of(const QuorumHold& hold, Nodes& nodes);

/// Throws an Error that names each node that does not count for the hold, and the reason.
[[noreturn]] void throw_no_majority_of(const QuorumHold& hold, const Nodes& nodes);

}  // namespace dlock
