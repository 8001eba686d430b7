#pragma once

#include "config/settings.hpp"
#include "lock/store.hpp"

namespace dlock {

/// The engine that `settings` name: the one place where a URL becomes a store. Nothing is opened
/// or connected yet.
StorePtr open_store(const Settings& settings);

/// How long a command without a ttl of its own (release, inspect, renew) waits for an answer.
Patience short_patience();

}  // namespace dlock
