#pragma once

#include <cstddef>
#include <vector>

#include "lock/grant.hpp"
#include "lock/store.hpp"
#include "quorum/quorum_hold.hpp"

namespace dlock {

/// The holders that nodes have named, as each of those nodes sees them: one list for each owner.
std::vector<std::vector<Holder>> holders_by_owner(
    const std::vector<std::vector<Holder>>& node_lists);

/// Merges the answers of nodes to one query. Holders that lack some of their votes are left out,
/// unless those of the `servers` that did not answer can supply the rest.
std::vector<KeyState> merged_states(const Query& query,
                                    const std::vector<std::vector<KeyState>>& node_lists,
                                    std::size_t servers);

/// The distribution of the votes on a key that was not acquired.
struct VoteCount {
  std::size_t mine = 0;
  /// Others have, or may have, as many votes as they need and leave no room, or they wait before
  /// this claim.
  bool decided = false;
  /// The vote is undecided, and this claim should keep its votes: it has the most, or among equals
  /// the smallest owner, and nobody is before it in the queues of the nodes that it lacks. The
  /// others release theirs.
  bool leading = false;
};

VoteCount count_votes(const QuorumHold& hold, Deadline now);

/// Merges all refusals into one, which names the holders with the most votes first.
Refusal merged_refusal(const QuorumHold& hold);

}  // namespace dlock
