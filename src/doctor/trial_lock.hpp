#pragma once

#include "doctor/facts.hpp"
#include "lock/store.hpp"

namespace dlock {

/// A key that nobody has.
LockKey scratch_key();

/// Takes the lock by one store, waits for it by the other, hands it over, renews it and gives it
/// back: all that a `run` does, on a key of its own.
TrialLock hold_trial_lock(Store& first, Store& second, const LockKey& key);

}  // namespace dlock
