#pragma once

#include <variant>
#include <vector>

#include "lock/lease_renewer.hpp"

namespace dlock {

/// Releases one hold, with retries until the engine answers or `until` has come. Returns the
/// answer, or the reason why there was none. A hold that no longer exists counts as released if an
/// earlier request may have released it. HeldLocks and release_all() call it.
std::variant<ReleaseResult, Error> release_until_answered(Store& store, const Held& held,
                                                          ReleaseOptions how, Deadline until);

/// Releases everything that these claims hold or wait for, without min-hold. It repeats a release
/// for `at_most`; after one without an answer, all further releases share one `at_most` until the
/// engine answers again. True if the engine answered for all.
bool release_all(Store& store, const std::vector<Held>& held, milliseconds at_most);

}  // namespace dlock
