#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lock/claim.hpp"
#include "lock/grant.hpp"
#include "redis/reply.hpp"

namespace dlock {

/// The names of one lock's keys in Redis. All but `alive` are in one Cluster slot.
struct KeyNames {
  KeyNames(const std::string& prefix, const LockKey& key);
  std::string holds;
  std::string queue;
  std::string waiters;
  std::string fence;
  std::string fence_register;  ///< of the resource with the name of the key, for `guard`
  std::string latch;           ///< of a latch, not of a lock; also its channel
  std::string alive;           ///< of the whole prefix, if the server is a member of a quorum
};

/// The end of an error about foreign data: `; its keys in Redis begin with dlock:{nightly}`.
std::string redis_keys_text(const std::string& prefix, const LockKey& key);

/// The key that a name of `holds`, `queue`, `latch` or, if asked for, `fence` form belongs to;
/// nothing for other names.
std::optional<LockKey> key_of(std::string_view prefix, std::string_view name, bool fences = false);

/// The pattern with which SCAN finds all locks below a prefix.
std::string scan_pattern(std::string_view prefix);

/// ` lease ttl limit owner who`: the end of a grant's or waiter's entry. The client formats it, to
/// spare the script the work.
std::string packed_claim(const Claim& claim);

/// Packs host, process, user, command, label and, unless it is `run`, the means. parse_who() is the
/// reverse, and also reads what packed_command() adds.
std::string packed_who(const Who& who);
Who parse_who(std::string_view text);

/// ` #pid`: appended to `who` once the pid of its command is known; empty for 0.
std::string packed_command(pid_t command_pid);

/// A value of the holds hash.
struct StoredHold {
  Holder hold;
  bool live = false;  ///< neither expired nor a tombstone
};

/// Parses a value of the holds hash, as it is at the server's `now` (microseconds). Throws
/// Error{wrong_data} if the text is malformed.
StoredHold parse_hold(std::string_view value, std::int64_t now);

/// The last grant in the fence's entry; nothing if the entry is only a fence.
std::optional<LastGrant> parse_last_grant(std::string_view value);

/// Parses a value of the waiters hash. `ticket` is its score in the queue.
Waiter parse_waiter(std::string_view value, std::int64_t ticket, std::int64_t now);

/// The latch whose first entry is `head`, without its arrivals and its end; nothing if the entry is
/// foreign.
std::optional<LatchState> latch_of_entry(std::string_view head);

/// A decimal number from the server, below 2^53; throws Error{unavailable} if it is none.
std::int64_t server_number(std::string_view text);
/// The same for milliseconds, up to longest_span.
milliseconds server_span(std::string_view text);

/// Read the script's answer item by item. They throw Error{unavailable} if an item is missing or
/// malformed.
[[noreturn]] void unexpected_answer();
const Reply& reply_item(const Reply& reply, std::size_t i);
std::string_view reply_text(const Reply& reply, std::size_t i);
std::int64_t reply_number(const Reply& reply, std::size_t i);
milliseconds reply_ms(const Reply& reply, std::size_t i);

/// The holds in a reply from `first` on; `now` is the server's clock.
std::vector<Holder> holders_from(const Reply& reply, std::size_t first, std::int64_t now);

/// Parses a reply that begins with "refused".
Refusal refusal_from(const Reply& reply);

}  // namespace dlock
