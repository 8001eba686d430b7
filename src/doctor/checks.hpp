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

// Requests and checks that several engines share.

/// Fills `facts`: reads the server's clock several times, calls `rest`, and reads the clock once
/// more after 300 ms to see its pace. An Error about the server becomes a fact, without the
/// prefix `shown`; one about dlock's settings or this host is passed on.
void examine(Contact& facts, const std::string& shown,
             const std::function<std::optional<WallTime>()>& clock,
             const std::function<void()>& rest);

/// A new random key.
LockKey scratch_key();

/// Acquires the lock with one store, waits for it with the other, hands it over, renews it and
/// releases it, as `run` would. The prefix `shown` is removed from an error's text.
TrialLock try_lock(Store& first, Store& second, const LockKey& key, const std::string& shown);
/// The same with two stores from `open`.
TrialLock try_lock(const std::function<StorePtr()>& open, const LockKey& key,
                   const std::string& shown);

/// An error's `message` without the parts that its reader knows: the prefixes that name the server
/// and the key, and the place in the script.
std::string bare_trouble(std::string message, const std::string& name, const std::string& key = "");

bool are_on_this_host(const std::vector<Endpoint>& servers);

/// `denied_advice` is given if the server refused the login, `address_advice` if it did not answer.
Finding check_reach(const Contact& facts, milliseconds ttl, const char* denied_advice,
                    const char* address_advice);
/// Returns `finding`, or a warning if one round trip takes too much of the ttl.
Finding warn_if_slow(const Finding& finding, std::chrono::nanoseconds round_trip, milliseconds ttl);
/// The check `reach` for servers where one is enough. `text` describes the one that answered.
Finding check_reach_of_any(const std::optional<std::string>& text,
                           const std::vector<const Fault*>& unreachable);
/// Names the engine and the versions of its servers; an error if one is older than `least`.
Finding check_versions(const std::string& engine, const std::set<std::string>& versions,
                       ShortVersion least);
Finding check_lock(const TrialLock& trial, const char* advice);
/// The row `lock` of an engine whose rights `doctor --acl` prints.
template <typename Facts>
constexpr Check<Facts> lock_row{
    "lock",
    [](const Facts& facts) {
      return check_lock(facts.trial,
                        "see the findings above, and dlock doctor --acl for the rights");
    },
    [](const Facts& facts) { return facts.tried; }};
Finding check_clock(const std::vector<ClockSample>& clock);
/// The check `tls` for a connection without it.
Finding check_plain_text(bool here, const char* advice);

}  // namespace dlock
