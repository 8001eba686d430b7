#pragma once

#include <cstddef>
#include <vector>

#include "lock/grant.hpp"
#include "lock/store.hpp"

namespace dlock {

/// The holders that nodes have named, as each of those nodes sees them: one list for each owner.
std::vector<std::vector<Holder>> holders_by_owner(
    const std::vector<std::vector<Holder>>& node_lists);

/// Merges the answers of nodes to one query. Holders that lack some of their votes are left out,
/// unless those of the `servers` that did not answer can supply the rest.
std::vector<KeyState> merged_states(const Query& query,
                                    const std::vector<std::vector<KeyState>>& node_lists,
                                    std::size_t servers);

}  // namespace dlock
