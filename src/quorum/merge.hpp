#pragma once

#include <optional>
#include <vector>

#include "base/error.hpp"
#include "lock/grant.hpp"
#include "lock/store.hpp"

namespace dlock {

/// The owners that members have named, each once.
std::vector<Holder> merged_holders(const std::vector<std::vector<Holder>>& said);

/// Merges the answers of members to one query. Holders that lack some of their votes are left out,
/// unless those of the `servers` that did not answer can supply the rest.
std::vector<KeyState> merged_states(const Query& query,
                                    const std::vector<std::vector<KeyState>>& said,
                                    std::size_t servers);

/// Throws one Error that sums up the troubles. There is an entry for each member, empty if all is
/// well there.
[[noreturn]] void throw_no_majority(const std::vector<std::optional<Error>>& troubles);

}  // namespace dlock
