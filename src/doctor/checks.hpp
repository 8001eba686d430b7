#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "doctor/facts.hpp"
#include "doctor/finding.hpp"
#include "lock/store.hpp"

namespace dlock {

// The questions and checks that several kinds of servers have in common.

/// Fills `facts`: reads the server's clock some times, asks for `rest`, and reads the clock once
/// more after 300 ms, for its pace. An Error is a fact, without `shown` in front, unless it says
/// that a setting of dlock's own is wrong.
void examine(Contact& facts, const std::string& shown,
             const std::function<std::optional<WallTime>()>& clock,
             const std::function<void()>& rest);

/// A key that nobody has.
LockKey scratch_key();

/// Takes the lock by one store, waits for it by the other, hands it over, renews it and releases
/// it: all that a `run` does, on a key of its own. `shown` is cut from what goes wrong.
TrialLock try_lock(Store& first, Store& second, const LockKey& key, const std::string& shown);
/// The same by two stores of `open`.
TrialLock try_lock(const std::function<StorePtr()>& open, const LockKey& key,
                   const std::string& shown);

/// An error's `message` without what its reader knows: the name of the server and the key that
/// stand in front, and the place in the script.
std::string bare_trouble(std::string message, const std::string& name, const std::string& key = "");

bool are_on_this_host(const std::vector<Endpoint>& servers);

/// `denied_advice`: to check if the server refused the login; `address_advice`: if it did not
/// answer.
Finding check_reach(const Contact& facts, milliseconds ttl, const char* denied_advice,
                    const char* address_advice);
/// `finding`, or a warning in its place if a round trip takes too much of the ttl.
Finding warn_if_slow(const Finding& finding, std::chrono::nanoseconds round_trip, milliseconds ttl);
/// Of servers of which one that answers is enough; `text` tells of that one, and is nothing if
/// none does.
Finding check_reach_of_any(const std::optional<std::string>& text,
                           const std::vector<const Fault*>& unreachable, const char* advice);
/// `engine`, and the versions of its servers; an error if one is older than `least`.
Finding check_versions(const std::string& engine, const std::set<std::string>& versions,
                       ShortVersion least);
Finding check_lock(const TrialLock& trial, const char* advice);
Finding check_clock(const std::vector<ClockSample>& clock);
/// Of a connection without TLS.
Finding check_plain_text(bool here, const char* advice);

}  // namespace dlock
