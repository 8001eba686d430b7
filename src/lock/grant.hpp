#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.hpp"
#include "lock/claim.hpp"

namespace dlock {

/// A count-down latch: so many have to arrive, and it is open for all who wait, until its end.
struct LatchState {
  std::int64_t count = 0;
  std::int64_t arrived = 0;  ///< at most `count`: who comes later is not recorded
  milliseconds left{0};      ///< until it ends
  bool open() const { return arrived >= count; }
};

/// The fencing token: below 2^53, and larger with every grant of the key to a new owner, so that
/// the resource can refuse a holder that has been overtaken.
struct Fence {
  std::int64_t value = 0;
  auto operator<=>(const Fence&) const = default;
};

/// The place in the queue, in microseconds of the server's clock; smaller is earlier. A waiter
/// brings it back with every request, so a reconnect does not cost the place.
struct Ticket {
  std::int64_t value = 0;
  auto operator<=>(const Ticket&) const = default;
};

/// How long a hold is good for. `valid_until` counts from before the request was sent, less the
/// drift allowance: once it has passed, another may hold. `never` where the hold has no lease.
struct Lease {
  milliseconds length{0};
  Deadline valid_until = never;
};

/// On how many of several servers a hold stands.
struct QuorumMargin {
  std::size_t held = 0;
  std::size_t needed = 0;
  std::size_t servers = 0;
  std::string missing;  ///< the others, and what is wrong with them, for people
  /// Some of those are no servers of their own, which no margin has said before: the user who named
  /// them should know.
  bool misnamed = false;
};

/// A claim holds its key.
struct Grant {
  Fence fence;
  Lease lease;
  /// By an answer to ourselves; else it was only told, and renew() confirms it.
  bool confirmed = true;
  /// Of a hold renewed on a server: as it was granted.
  std::optional<Limit> limit{};
  /// Where several servers decide: on how many the hold stood when all were last asked; those that
  /// have had no time to answer count among them.
  std::optional<QuorumMargin> margin{};
};

/// One owner inside, as others may see it.
struct Holder {
  std::string owner;  ///< empty for a kept hold, which has none
  Who who;
  WallTime acquired_at;
  milliseconds held{0};
  std::optional<milliseconds> lease_left;  ///< nothing where the holder needs no lease
  Limit limit;
  int holds = 1;
  Fence fence;
  bool kept = false;  ///< the work is over; --min-hold keeps the key taken
  /// Of a lock in the layout of other libraries: those that write such. Then the rest is only what
  /// the lock's value tells, `acquired_at` the epoch where it does not, and no lease no expiry.
  std::string library{};
  int held_on = 0;  ///< where several servers decide: on how many of them,
  int servers = 0;  ///< of so many; 0: there is one
};

/// One in the queue. `position` counts from 1.
struct Waiter {
  std::size_t position = 0;
  std::string owner;
  Who who;
  Ticket ticket;
  milliseconds waiting{0};
  Limit limit;
};

/// A claim does not hold its key, and why.
struct Refusal {
  enum class Reason {
    held,        ///< by others, or others wait before
    upgrade,     ///< the owner is inside already, beside more others than this request allows
    gone,        ///< this token was released before; it is never granted again
    superseded,  ///< a newer claim with `latest` waits or waited; `held_by` has it
    split,    ///< of several servers too few agreed, and for nobody: ask again under another token,
              ///< after a pause of up to `ask_again_in`
    unready,  ///< of several servers too few have a vote for so long; `reason` names them
  };
  Reason why = Reason::held;
  std::vector<Holder> held_by;   ///< the first few
  std::size_t holders = 0;       ///< how many owners are inside
  std::size_t ahead = 0;         ///< how many stand before this request in the queue
  std::size_t waiting = 0;       ///< how many stand in the queue, this request included if it does
  Ticket ticket;                 ///< to be brought back; meaningless if the request did not wait
  milliseconds ask_again_in{0};  ///< when what blocks now ends at the latest
  /// One of the first waiters sleeps no longer than this before it asks again: so it notices that
  /// those before it do not confirm what they are granted, where no message may tell it.
  milliseconds longest_sleep_near_head{5000};
  std::optional<Who> behind;  ///< the waiter ahead, where the holders would leave room
  std::string reason;         ///< of `unready` and maybe of `split`, for people
  bool unordered = false;     ///< of `held`: there is no queue; the first to ask is granted
};

using Answer = std::variant<Grant, Refusal>;

/// The last holder of a key that is free now, as far as its place remembers.
struct LastGrant {
  Who who;
  WallTime acquired_at;
  Fence fence;
  bool operator==(const LastGrant&) const = default;
};

/// Everything about one key: of the lock, and of the latch that has its name.
struct KeyState {
  LockKey key;
  std::vector<Holder> holders{};
  std::vector<Waiter> waiters{};
  std::optional<LatchState> latch{};
  std::optional<LastGrant> last{};  ///< only where nobody holds it

  bool of_lock() const { return !holders.empty() || !waiters.empty(); }
  /// Whether a pattern meets it.
  bool in_use() const { return of_lock() || latch.has_value(); }
};

/// As they will be `span` later if nothing happens meanwhile.
void age_by(std::vector<Holder>& holders, milliseconds span);
void age_by(KeyState& state, milliseconds span);

/// One hold as an engine stores it, times relative to the engine's own "now"; what holders_of
/// groups into Holders.
struct Hold {
  std::string owner;
  Who who;
  WallTime acquired_at;
  milliseconds held{0};
  std::optional<milliseconds> lease_left;
  Limit limit;
  Fence fence;
  bool kept = false;
};

/// The owners inside: holds of one owner become one Holder (its oldest process, its longest lease,
/// its smallest limit), every kept hold one of its own; oldest first.
std::vector<Holder> holders_of(std::vector<Hold> holds);

/// An answer by which later messages of the same place are dated.
struct DatedAnswer {
  Deadline sent{};        ///< when it was asked for
  microseconds clock{0};  ///< of the place, in the answer
};

/// The content of a message by which a lock is handed over.
struct HandOver {
  microseconds at{0};  ///< by the place's clock
  milliseconds lease{0};
  Fence fence;
};

/// The grant that a message tells of. Nothing if less than `least_left` of its lease may be left,
/// because the message is old, or if the place's clock was set since the answer. One that was read
/// late has so little of its lease left that it is renewed before a command starts.
std::optional<Grant> handed_over_grant(const DatedAnswer& answer, const HandOver& told,
                                       milliseconds least_left);

}  // namespace dlock
