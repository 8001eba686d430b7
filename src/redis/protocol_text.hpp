#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lock/claim.hpp"
#include "lock/grant.hpp"

namespace dlock {

/// The names of one lock's keys: all in one Cluster slot, whatever the key's text.
struct KeyNames {
  KeyNames(const std::string& prefix, const LockKey& key);
  std::string holds;
  std::string queue;
  std::string waiters;
  std::string fence;
  std::string fence_register;  ///< of a resource with the name of the key: what `guard` has seen
  std::string latch;           ///< of a latch, not of a lock; also the name of its channel
  std::string alive;           ///< of the whole prefix, where the server is a member of a quorum
};

/// For an error about data of somebody else: `; its keys in Redis begin with dlock:{nightly}`.
std::string redis_keys_text(const std::string& prefix, const LockKey& key);

/// The key behind a name of `holds`, `queue` or `latch` form; nothing for other names.
std::optional<LockKey> key_of(std::string_view prefix, std::string_view name);

/// The pattern SCAN is to match for all locks below a prefix.
std::string scan_pattern(std::string_view prefix);

/// ` lease ttl limit owner who`: what a grant or a waiter's entry ends with, made by the
/// client so that the script need not.
std::string packed_claim(const Claim& claim);

/// Host, process, user, command and label: five words. And the reverse, with what
/// packed_command() may have added.
std::string packed_who(const Who& who);
Who parse_who(std::string_view text);

/// ` #pid`: what `who` ends with once the process of its command is known; empty for 0.
std::string packed_command(pid_t command_pid);

/// The first arguments of an `operation` of the script that is about a whole claim.
std::vector<std::string> claim_arguments(const std::string& operation, const Claim& claim);

/// The arguments of `renew`; only a node of several servers takes a fence.
std::vector<std::string> renewal_arguments(const Claim& claim, std::optional<milliseconds> ttl,
                                           std::optional<Fence> granted);

/// A value of the holds hash.
struct StoredHold {
  Hold hold;
  bool live = false;  ///< neither expired nor a tombstone
};

/// A value of the holds hash as it is at the server's `now` (microseconds); throws
/// Error{wrong_data} if it is none.
StoredHold parse_hold(std::string_view value, std::int64_t now);

/// The last grant, as the fence's entry tells it; nothing if it says the fence alone.
std::optional<LastGrant> parse_last_grant(std::string_view value);

/// A value of the waiters hash, for the ticket it stands at in the queue.
Waiter parse_waiter(std::string_view value, std::int64_t ticket, std::int64_t now);

/// The latch whose first entry this is, but for its arrivals and its end; nothing if it is of none.
std::optional<LatchState> latch_of_entry(std::string_view head);

/// A decimal number from the server, of `most` at most; throws Error{unavailable} if it is none.
std::int64_t server_number(std::string_view text, std::int64_t most = INT64_MAX);

/// The same as a fence: one that the server grants is above 0 and at most the largest.
Fence server_fence(std::string_view text);

/// The same as milliseconds and as a moment on the server's clock, within what can be reckoned
/// with.
milliseconds server_span(std::string_view text);
microseconds server_clock(std::string_view text);

}  // namespace dlock
