#pragma once

#include <optional>
#include <vector>

#include "lock/grant.hpp"
#include "lock/store.hpp"

namespace dlock {

/// The owners that nodes have named, each once. There is no list of a node that did not answer.
std::vector<Holder> merged_holders(const std::vector<std::optional<std::vector<Holder>>>& said);

/// Merges the answers of nodes to one query. Holders that lack some of their votes are left out,
/// unless those of the `servers` that did not answer can supply the rest.
std::vector<KeyState> merged_states(const Query& query,
                                    const std::vector<std::vector<KeyState>>& said,
                                    std::size_t servers);

}  // namespace dlock
