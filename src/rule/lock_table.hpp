#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.hpp"
#include "base/process.hpp"
#include "lock/claim.hpp"
#include "lock/grant.hpp"
#include "lock/store.hpp"

namespace dlock {

/// A moment, as the rules see it: one clock for leases and the queue, one that fences must not fall
/// behind. Both count from wherever they like.
struct Now {
  microseconds lease_clock{0};
  microseconds wall{0};
  /// A new fence is at least that, and the wall clock means nothing for it: the place counts.
  std::optional<Fence> fence_floor{};
};

/// The process behind an entry, as its engine finds it again. The rules carry it about and never
/// look into it.
struct HolderIdentity {
  bool by_process = false;  ///< Liveness::process
  ProcessId process;
  ProcessId command;    ///< on local: the leader of its process group; pid 0: none yet
  std::string mailbox;  ///< where it listens, in the engine's words; empty: nowhere
  bool operator==(const HolderIdentity&) const = default;
};

enum class Flag {
  held,
  provisional,  ///< handed over; until the first renewal its lease is short
  kept,         ///< the work is over, the floor is not
  tombstone,    ///< this token must never be granted (again)
};

struct HoldEntry {
  Token token;
  Owner owner;  ///< `-` for a kept one
  Flag flag = Flag::held;
  microseconds at{0};     ///< granted or renewed
  microseconds since{0};  ///< granted
  milliseconds lease{0};  ///< from `at`
  milliseconds ttl{0};
  milliseconds floor{0};  ///< from `since`
  Limit limit;
  Fence fence;
  Who who;
  HolderIdentity backing;
  bool operator==(const HoldEntry&) const = default;
  /// Whether its owner is inside: may work, and be re-entered.
  bool inside() const { return flag == Flag::held || flag == Flag::provisional; }
  /// Whether others see it.
  bool counts() const { return flag != Flag::tombstone; }
};

struct WaiterEntry {
  Token token;
  Owner owner;
  Ticket ticket;
  microseconds seen{0};
  microseconds told{
      0};  ///< when it will ask of itself, having been told; 0: not told since it asked
  milliseconds ttl{0};
  milliseconds floor{0};
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
  milliseconds in{0};  ///< what blocks ends that soon
  bool operator==(const NextMessage&) const = default;
};
using Message = std::variant<GrantMessage, NextMessage>;

/// The way to the waiters.
class WaiterNotifier {
 public:
  virtual ~WaiterNotifier() = default;
  /// Tells one waiter; false if nobody listens there any more: then it leaves the queue.
  virtual bool wake(const WaiterEntry& waiter, const Message& message) = 0;
  /// How many of the first are to know when what blocks ends, and how many are told where one of
  /// them does not.
  struct WakeWindow {
    std::size_t know = 3;  ///< one alone might be about to die unseen
    std::size_t told = 8;  ///< then most hand-overs wake nobody but who gets the lock
  };
  virtual WakeWindow first_few() const { return {}; }
  /// How long a waiter that was granted by a message may take to confirm. Where its command may run
  /// by then, it is to outlive a hiccup of some seconds.
  virtual milliseconds provisional_lease() const { return milliseconds(6000); }
};

/// The newest that asked with Claim::latest.
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

/// As Refusal, with the holds that block as they are stored; of `superseded` the newer claim.
struct Refused {
  Refusal::Reason why = Refusal::Reason::held;
  std::vector<HoldEntry> holds;
  std::size_t ahead = 0;
  std::size_t waiting = 0;
  Ticket ticket;
  milliseconds ask_again{0};
  bool operator==(const Refused&) const = default;
};

/// An answer, and whether the work for the queue was cut short: then admit_waiters() goes on with
/// it.
template <typename T>
struct Outcome {
  T answer;
  bool more = false;
};

/// One key: the rules of the protocol over a plain value. No clock, file or process is in here.
/// src/redis/lock states the same rules in Lua and adds what only a server needs; tests compare the
/// two by way of tests/reference.
struct LockTable {
  std::vector<HoldEntry> holds;
  std::deque<WaiterEntry> queue;        ///< by ticket, then token
  Fence last_fence;                     ///< 0: none yet
  std::optional<LastGrant> last;        ///< who was granted it
  microseconds last_ask{0};             ///< when somebody in the queue last showed itself
  std::optional<LatestClaim> latest{};  ///< remembered as long as the queue
  bool operator==(const LockTable&) const = default;

  /// A new owner's fence is max(last + 1, the wall clock or Now::fence_floor).
  Outcome<std::variant<Granted, Refused>> acquire(const Claim& claim, const Ask& ask,
                                                  const HolderIdentity& backing, Now now,
                                                  WaiterNotifier& wakes);
  /// Renews and confirms a hold, by its own TTL if none is given; answers its lease.
  Outcome<std::optional<milliseconds>> renew(const Token& token, std::optional<milliseconds> ttl,
                                             Now now, WaiterNotifier& wakes);
  Outcome<Released> release(const Token& token, ReleaseMode mode, Now now, WaiterNotifier& wakes);
  /// Everybody, or the holds with this fence; answers those thrown out.
  /// They learn from evicted_by() who `by` is.
  Outcome<std::vector<HoldEntry>> force(std::optional<Fence> fence, const Who& by, Now now,
                                        WaiterNotifier& wakes);
  /// The evictor of the hold of this token, where it is known; its label is the reason.
  std::optional<Who> evicted_by(const Token& token) const;
  /// Expires what has ended and lets the queue in, as every request does on its way; true if more
  /// work for the queue is left.
  bool admit_waiters(Now now, WaiterNotifier& wakes);

  /// The holds that count at `now`, tombstones and expired ones left out.
  std::vector<HoldEntry> live_holds(Now now) const;

  HoldEntry* find_hold(const Token& token);
  std::deque<WaiterEntry>::iterator find_waiter(const Token& token);
};

/// The entry of a claim that asks now.
WaiterEntry waiter_of(const Claim& claim, const HolderIdentity& backing, microseconds now);

/// The trace of a token that is not granted again while `lease` lasts.
HoldEntry tombstone(const Token& token, milliseconds lease, microseconds now);

/// Ends a hold that is released: it becomes kept if its floor is not over, or else is removed. True
/// if it was removed.
bool end_hold(LockTable& table, HoldEntry& hold, microseconds now);

/// The same for a hold whose lease has ended, or whose process: a waiter that has not confirmed its
/// grant has done no work, so that this ends without a floor.
bool expire_hold(LockTable& table, HoldEntry& hold, microseconds now);

/// The rest of an entry's lease; an `at` in the future (the clock went back) counts as `now`.
microseconds left_of(const HoldEntry& hold, microseconds now);

/// A stored hold as others see it at `now`: with its lease, and with the process ID of its command
/// as the holder stored it.
Hold hold_from(const HoldEntry& entry, const Now& now);

/// The owners of holds that all live by their leases.
std::vector<Holder> holders_from(const std::vector<HoldEntry>& entries, const Now& now);

/// A stored waiter at `position` in the queue, as others see it at `now`.
Waiter waiter_from(const WaiterEntry& entry, std::size_t position, const Now& now);

/// The last grant of a key that is free, which every engine shows for a week: as long as Redis
/// keeps the entry of a fence.
std::optional<LastGrant> recent_grant(const LockTable& table, const Now& now);

/// The rule's refusal as a client sees it. `holders` are the owners of its holds, of which it names
/// the first few.
Refusal refusal_from(const Refused& refused, std::vector<Holder> holders);

}  // namespace dlock
