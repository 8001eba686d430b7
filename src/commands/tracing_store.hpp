#pragma once

#include "lock/store.hpp"
#include "output/log.hpp"

namespace dlock {

/// A line for -v about a step that was taken, left out where it would have to wait for who reads
/// stderr: whoever keeps a lease up must not be held up by that.
void tell_step(const Log& log, const std::string& text);

/// `store`, which tells each step it takes: what was asked of it, what it said, and how long that
/// took. Any thread may be the one that uses it.
StorePtr told(StorePtr store, const Log& log);

}  // namespace dlock
