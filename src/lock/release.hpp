#pragma once

#include <variant>
#include <vector>

#include "lock/lease_renewer.hpp"

namespace dlock {

/// Releases one hold, again and again until the engine answers or `until` has come; the answer, or
/// why there was none. A hold that is gone counts as released if an earlier request may have done
/// it. Called by `run`, and through release_all() where a command never began.
std::variant<ReleaseResult, Error> release_until_answered(Store& store, const Held& held,
                                                          ReleaseMode mode, Deadline until);

/// Releases whatever these claims hold or wait for, without their min-hold; repeats until answered,
/// for `at_most` each as long as it answers, and once more after the first that it does not answer
/// for. True if it answered for all.
bool release_all(Store& store, const std::vector<Held>& held, milliseconds at_most);

}  // namespace dlock
