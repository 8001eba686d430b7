#pragma once

#include <optional>
#include <vector>

#include "base/error.hpp"
#include "lock/grant.hpp"
#include "lock/store.hpp"

namespace dlock {

/// The owners that members have named, each once.
std::vector<Holder> merged_holders(const std::vector<std::vector<Holder>>& said);

/// The answers of members to the same query, as one: holders who have not the votes of the
/// `servers` that they need, and cannot have them with those that did not answer, are left out.
std::vector<KeyState> merged_states(const Query& query,
                                    const std::vector<std::vector<KeyState>>& said,
                                    std::size_t servers);

/// A member each, nothing where all is well: throws what they come to.
[[noreturn]] void throw_no_majority(const std::vector<std::optional<Error>>& troubles);

}  // namespace dlock
