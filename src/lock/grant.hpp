#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.hpp"
#include "lock/claim.hpp"
#include "lock/lease_validity.hpp"

namespace dlock {

/// A count-down latch: after `count` arrivals it is open for all waiters until it expires.
struct LatchState {
  std::int64_t count = 0;
  std::int64_t arrived = 0;  ///< at most `count`: the latch ignores later arrivals
  milliseconds left{0};      ///< until the latch expires
  bool open() const { return arrived >= count; }
};

/// The fencing token: below 2^53, and larger with every grant of the key to a new owner, so that
/// the resource can refuse a holder that has been overtaken.
struct Fence {
  std::int64_t value = 0;
  auto operator<=>(const Fence&) const = default;
};

/// The position in the queue, in microseconds of the server's clock; smaller is earlier. A waiter
/// sends it with every request, so that a reconnect does not cost its position.
struct Ticket {
  std::int64_t value = 0;
  auto operator<=>(const Ticket&) const = default;
};

/// How many of several servers have a hold.
struct QuorumMargin {
  std::size_t held = 0;
  std::size_t needed = 0;
  std::size_t servers = 0;
  std::string missing;  ///< the other servers and their faults, as text for users
  /// Some of the missing servers are misconfigured, for example duplicates, and no earlier margin
  /// has reported it: the user who configured them should know.
  bool misnamed = false;
};

/// A holder that was evicted just before a grant. It may not know yet, and its command may run
/// until its lease ends.
struct Predecessor {
  Who evicted_by;  ///< its label is the reason
  milliseconds left{0};
  bool operator==(const Predecessor&) const = default;
};

/// The answer that a claim holds its key.
struct Grant {
  Fence fence;
  Lease lease;
  /// The server has answered our own request. If false, only a message reported the grant, and
  /// renew() confirms it.
  bool confirmed = true;
  /// For a renewed hold: the limit with which it was granted.
  std::optional<Limit> limit{};
  /// With several servers: how many had the hold when all were last asked. A server that has had no
  /// time to answer yet counts as one that has the hold.
  std::optional<QuorumMargin> margin{};
  /// Set by the answer that grants the key, or that confirms a grant by message.
  std::optional<Predecessor> predecessor{};
};

/// One owner that holds the key, as other clients see it.
struct Holder {
  std::string owner;  ///< empty for a hold in cooldown, which has no owner
  Who who;
  WallTime acquired_at;
  milliseconds held{0};
  std::optional<milliseconds> lease_left;  ///< empty if the holder needs no lease
  milliseconds ttl{0};                     ///< how long a renewed lease lasts
  milliseconds renewed_ago{0};             ///< with a lease: since it was granted or last renewed
  Limit limit;
  int holds = 1;
  Fence fence;
  bool kept = false;  ///< in cooldown: the work has ended, but --min-hold keeps the key taken
  std::optional<Who> stop_asked_by{};  ///< the client that asked the holder to stop, if one did
  /// On local: a process of the command, if the dlock that ran it is dead; else pid 0.
  pid_t orphan = 0;
  std::string orphan_name{};
  /// The libraries that write such a lock, if the lock has another library's layout. The other
  /// fields then contain only what the lock's value tells: without a time, `acquired_at` is the
  /// epoch; without an expiry, there is no lease.
  std::string library{};
  int held_on = 0;  ///< with several servers: how many have the hold
  int servers = 0;  ///< with several servers: how many there are; else 0

  /// Whether a dlock runs for the hold, which hears a request to stop.
  bool hears_requests() const {
    return library.empty() && !kept && orphan == 0 && who.via != Via::acquire;
  }
};

/// Whether these holders have ended, and only their min-holds keep the key.
bool in_cooldown(std::span<const Holder> holders);

/// How these holders hold the key, by the smallest of their limits, which decides who else may:
/// `exclusive`, `semaphore` or `shared`; `cooldown` if they have ended.
const char* mode_of(std::span<const Holder> holders);

/// One waiter in the queue. `position` counts from 1.
struct Waiter {
  std::size_t position = 0;
  std::string owner;
  Who who;
  Ticket ticket;
  milliseconds waiting{0};
  Limit limit;
};

/// The answer that a claim does not hold its key, and the reason.
struct Refusal {
  enum class Reason {
    held,        ///< by other owners, or other waiters are first
    upgrade,     ///< this owner holds the key, together with more owners than the request allows
    gone,        ///< this token was released before and is never granted again
    superseded,  ///< a newer claim with `latest` has replaced this one; `held_by` contains it
    split,  ///< no claim won enough of several servers: ask again with another token, after a pause
            ///< of up to `ask_again_in`
    unready,  ///< until `ask_again_in` has passed, too few of several servers have a vote
  };
  Reason why = Reason::held;
  std::vector<Holder> held_by;   ///< the first few
  std::size_t holders = 0;       ///< how many owners hold the key
  std::size_t ahead = 0;         ///< how many waiters are before this request
  std::size_t waiting = 0;       ///< how many waiters are queued; counts this request if queued
  Ticket ticket;                 ///< for the next request; meaningless if the request did not wait
  milliseconds ask_again_in{0};  ///< the longest time until the current obstacle ends
  /// A waiter asks at least this often: Redis drops a first waiter that is silent for 75 s.
  milliseconds longest_sleep{25'000};
  /// The first few waiters ask again after at most this long. If a waiter before them does not
  /// confirm its grant, and the engine sends no message, they notice it only then.
  milliseconds longest_sleep_near_head{5000};
  std::optional<Who> behind;  ///< the waiter before this request, if only the queue keeps it out
  std::string reason;         ///< for `unready`, and sometimes for `split`: text for users
  bool unordered = false;     ///< for `held`: there is no queue, and the first to ask is granted
};

using Answer = std::variant<Grant, Refusal>;

/// How a hold ended: by a release, or by an eviction.
struct EndOfHold {
  WallTime at;
  std::optional<int> exit_code{};   ///< of the command, if the holder told it
  std::optional<Who> evicted_by{};  ///< its label is the reason
  bool operator==(const EndOfHold&) const = default;
};

/// The last holder of a free key, as far as the engine remembers. If the hold has no end, its lease
/// expired, or its process ended without a release.
struct LastGrant {
  Who who;
  WallTime acquired_at;
  Fence fence;
  std::optional<EndOfHold> end{};
  bool operator==(const LastGrant&) const = default;
};

/// Everything about one key: its lock and the latch of the same name.
struct KeyState {
  LockKey key;
  std::vector<Holder> holders{};
  std::vector<Waiter> waiters{};
  std::optional<LatchState> latch{};
  std::optional<LastGrant> last{};  ///< set only if the key is free

  bool of_lock() const { return !holders.empty() || !waiters.empty(); }
  /// Whether a query reports the key for a glob; a free key is reported only if asked for by name.
  bool in_use() const { return of_lock() || latch.has_value(); }
};

/// Changes the values to what they will be `span` later if nothing else happens.
void age_by(std::vector<Holder>& holders, milliseconds span);
void age_by(KeyState& state, milliseconds span);

/// The owners of these single holds, oldest first. All holds of one owner become one Holder with
/// its oldest process, its longest lease and its smallest limit; each hold in cooldown stays
/// separate.
std::vector<Holder> holders_of(std::vector<Holder> holds);

/// The times of an answer: the reference for the times in later messages of the same server.
struct DatedAnswer {
  Deadline sent{};        ///< when the request was sent
  microseconds clock{0};  ///< the server's clock in the answer
};

/// The content of the message that hands a lock over.
struct HandOver {
  microseconds at{0};  ///< when the server sent it, by the server's clock
  milliseconds lease{0};
  Fence fence;
};

/// The grant that a message announces; nothing if less than `least_left` of its lease may be left
/// because the message is old, or if the server's clock was set since the answer. If the message
/// was read late, the grant gets a lease so short that it is renewed before a command starts.
std::optional<Grant> handed_over_grant(const DatedAnswer& answer, const HandOver& told,
                                       milliseconds least_left);

}  // namespace dlock
