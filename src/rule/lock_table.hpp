#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.hpp"
#include "base/process_identity.hpp"
#include "lock/claim.hpp"
#include "lock/grant.hpp"
#include "lock/store.hpp"

namespace dlock {

/// The time, as the rules see it: one clock for leases and the queue, and one that fences must not
/// fall behind. Both may start anywhere.
struct Now {
  microseconds lease_clock{0};
  microseconds wall{0};
  /// The smallest possible new fence, in place of the wall clock, if the engine counts fences.
  std::optional<Fence> fence_floor{};
};

/// How an engine finds the process of an entry again. The rules only copy this.
struct HolderIdentity {
  bool by_process = false;  ///< Liveness::process
  ProcessId process;
  ProcessId command;    ///< on local: the leader of its process group; pid 0: not started yet
  std::string mailbox;  ///< where the process listens, in the engine's format; empty: nowhere
  bool operator==(const HolderIdentity&) const = default;
};

enum class Flag {
  held,
  provisional,  ///< handed over; its lease is short until the first renewal
  cooldown,     ///< the work has ended, but the min-hold has not
  tombstone,    ///< this token must never be granted (again)
};

struct HoldEntry {
  Token token;
  Owner owner;  ///< `-` in cooldown
  Flag flag = Flag::held;
  microseconds at{0};     ///< when it was last granted or renewed
  microseconds since{0};  ///< when it was granted
  milliseconds lease{0};  ///< counts from `at`
  milliseconds ttl{0};
  milliseconds min_hold{0};  ///< counts from `since`
  Limit limit;
  Fence fence;
  Who who;
  HolderIdentity backing;
  std::optional<Who> stop_asked_by{};  ///< the first client that asked its holder to stop
  bool operator==(const HoldEntry&) const = default;
  /// Whether its owner holds the key, and may re-enter it.
  bool inside() const { return flag == Flag::held || flag == Flag::provisional; }
  /// Whether other clients see this entry as a hold.
  bool counts() const { return flag != Flag::tombstone; }
};

struct WaiterEntry {
  Token token;
  Owner owner;
  Ticket ticket;
  microseconds seen{0};
  microseconds told{
      0};  ///< the end of the obstacle as the waiter knows it; 0: not told since it last asked
  milliseconds ttl{0};
  milliseconds min_hold{0};
  Limit limit;
  Who who;
  HolderIdentity backing;
  bool operator==(const WaiterEntry&) const = default;
};

/// A message to a waiter.
struct GrantMessage {
  microseconds now{0};
  milliseconds lease{0};
  Fence fence;
  bool operator==(const GrantMessage&) const = default;
};
struct NextMessage {
  milliseconds in{0};  ///< the obstacle ends after this time
  bool operator==(const NextMessage&) const = default;
};
using Message = std::variant<GrantMessage, NextMessage>;

class WaiterNotifier;

/// The newest claim that asked with Claim::latest.
struct LatestClaim {
  Ticket ticket;
  Token token;
  Owner owner;
  Who who;
  bool operator==(const LatestClaim&) const = default;
};

struct Granted {
  Fence fence;
  milliseconds lease{0};
  bool operator==(const Granted&) const = default;
};

/// Like Refusal, with the blocking holds as they are stored; for `superseded`, the newer claim.
struct Refused {
  Refusal::Reason why = Refusal::Reason::held;
  std::vector<HoldEntry> holds;
  std::size_t ahead = 0;
  std::size_t waiting = 0;
  Ticket ticket;
  milliseconds ask_again{0};
  bool operator==(const Refused&) const = default;
};

/// One key: the rules of the protocol on a plain value, without a clock, file or process.
/// src/redis/lock states the same rules in Lua and adds what only a server needs; tests compare the
/// two through tests/reference.
struct LockTable {
  std::vector<HoldEntry> holds;
  std::deque<WaiterEntry> queue;        ///< ordered by ticket, then token
  Fence last_fence;                     ///< 0: none yet
  std::optional<LastGrant> last;        ///< the last grant to a new owner
  microseconds last_ask{0};             ///< when a waiter of the queue last asked
  std::optional<LatestClaim> latest{};  ///< reset with the queue, when no waiter has asked for long
  bool operator==(const LockTable&) const = default;

  /// Asks for a claim. A new owner's fence is max(last + 1, the wall clock or Now::fence_floor).
  std::variant<Granted, Refused> acquire(const Claim& claim, const Ask& ask,
                                         const HolderIdentity& backing, Now now,
                                         WaiterNotifier& wakes);
  /// Renews and confirms a hold, with its own TTL if none is given; returns its lease.
  std::optional<milliseconds> renew(const Token& token, std::optional<milliseconds> ttl, Now now,
                                    WaiterNotifier& wakes);
  Released release(const Token& token, const ReleaseOptions& how, Now now, WaiterNotifier& wakes);
  /// Evicts holds, or asks their holders to stop, and returns these holds. The holders learn from
  /// evicted_by() or HoldEntry::stop_asked_by who did.
  std::vector<HoldEntry> evict(const Eviction& how, Now now, WaiterNotifier& wakes);
  /// The evicted holder whose lease lasts longest, if it still lasts.
  std::optional<Predecessor> predecessor(Now now) const;
  /// The client that evicted the hold of this token, if known; its label is the reason.
  std::optional<Who> evicted_by(const Token& token) const;
  /// Expires old holds and grants the lock to waiters, as every request does.
  void admit_waiters(Now now, WaiterNotifier& wakes);

  /// The holds that count at `now`, without tombstones and expired ones.
  std::vector<HoldEntry> live_holds(Now now) const;

  HoldEntry* find_hold(const Token& token);
  std::deque<WaiterEntry>::iterator find_waiter(const Token& token);
};

/// The queue entry of a claim that asks now.
WaiterEntry waiter_of(const Claim& claim, const HolderIdentity& backing, microseconds now);

/// The entry that prevents another grant of a token while `lease` lasts.
HoldEntry tombstone(const Token& token, milliseconds lease, microseconds now);

/// Ends a released hold: it goes into cooldown if its min-hold has not passed, otherwise end_hold()
/// removes it and returns true.
bool end_hold(LockTable& table, HoldEntry& hold, microseconds now);

/// Records the end of a hold of the last owner. If the owner has several, the last end counts.
void note_end(LockTable& table, Fence fence, EndOfHold end);

/// Ends a hold whose lease has expired or whose process has ended. A waiter that has not confirmed
/// its grant has done no work, so min-hold does not apply to it.
bool expire_hold(LockTable& table, HoldEntry& hold, microseconds now);

/// Expires each hold for which `has_ended` is true.
void expire_holds(LockTable& table, microseconds now, const auto& has_ended) {
  for (std::size_t i = 0; i < table.holds.size();) {
    HoldEntry& hold = table.holds[i];
    if (!has_ended(hold) || !expire_hold(table, hold, now)) ++i;
  }
}

/// The remaining time of an entry's lease; an `at` in the future (the clock went back) counts as
/// `now`.
microseconds left_of(const HoldEntry& hold, microseconds now);

/// A stored hold as others see it at `now`: with its lease, and with the command's process ID as
/// the holder stored it.
Holder hold_from(const HoldEntry& entry, const Now& now);

/// The owners of these holds; each hold has a lease.
std::vector<Holder> holders_from(const std::vector<HoldEntry>& entries, const Now& now);

/// A stored waiter at `position` in the queue, as others see it at `now`.
Waiter waiter_from(const WaiterEntry& entry, std::size_t position, const Now& now);

/// The last grant of a free key. Every engine shows it for a week, as long as Redis keeps the entry
/// of a fence.
std::optional<LastGrant> recent_grant(const LockTable& table, const Now& now);

/// The rule's refusal in the form for clients. `holders` are the owners of its holds, and the
/// refusal names the first few.
Refusal refusal_from(const Refused& refused, std::vector<Holder> holders);

}  // namespace dlock
