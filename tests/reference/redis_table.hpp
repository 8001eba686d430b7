#pragma once

#include <map>
#include <optional>
#include <variant>
#include <vector>

#include "base/clock.hpp"
#include "lock/claim.hpp"
#include "lock/grant.hpp"
#include "lock/store.hpp"
#include "rule/lock_table.hpp"

namespace dlock::reference {

/// How far from the server's clock a proposed fence may be.
constexpr std::chrono::seconds furthest_proposal{60};

/// A moment on a server, whose one clock serves leases, the queue and fences.
struct ServerNow {
  microseconds clock{0};
  /// So long a lease may last that the server has forgotten: until then it admits nobody but owners
  /// that are inside already, and tells all others to ask again then. 0: it remembers all.
  microseconds quarantine{0};
  /// The server is a node of a majority. Readers and the owners of seats of a semaphore need not
  /// all meet on any node: a node keeps them apart.
  bool is_node = false;
};

/// The notes of a server on a waiter, beside the entry of the rule.
struct WaiterNotes {
  std::optional<Fence> proposal{};  ///< of its last ask
  /// The fence of a hold that other nodes remember: the waiter is admitted without a message.
  std::optional<Fence> reserved{};
  /// Nobody listened when it was told: it keeps its place until then.
  std::optional<microseconds> absent_until{};
};

/// How a release is to be done.
struct ReleaseTerms {
  bool unsure = false;  ///< an unanswered acquire of this token may still come
  bool ignore_floor = false;
  milliseconds tombstone{0};  ///< with `unsure`: how long it must not be granted
};

/// One key as src/redis/lock keeps it: the rule of src/rule, and what a single server or a node of
/// a majority adds to it. Tests run the script against it, and the simulator makes its servers of
/// it. A queue is worked on as a whole, however long it is.
struct RedisTable {
  LockTable stored{};
  std::map<Token, WaiterNotes> notes{};  ///< of the waiters
  /// How long a waiter keeps its place to which nobody listens: it has asked for the first time and
  /// listens when it asks again, or its connection broke. 0: it leaves the queue at once.
  milliseconds longest_absence{1000};

  /// A new owner's fence is max(last + 1, `proposal` within furthest_proposal of the clock);
  /// without a proposal the clock is one.
  std::variant<Granted, Refused> acquire(const Claim& claim, const Ask& ask, ServerNow now,
                                         WaiterNotifier& wakes, std::optional<Fence> proposal = {});
  /// Where the hold's fence is smaller than `raise_to` and the last one is not larger, both become
  /// that.
  std::optional<milliseconds> renew(const Token& token, std::optional<milliseconds> ttl,
                                    ServerNow now, WaiterNotifier& wakes,
                                    std::optional<Fence> raise_to = {});
  /// Records a hold that other nodes granted with `fence`: past the queue and the quarantine, but
  /// not beside another owner, and not for a token that was released. The last fence becomes at
  /// least that. Where another is inside, the claim is first in the queue.
  std::optional<Granted> rejoin(const Claim& claim, Fence fence, ServerNow now,
                                WaiterNotifier& wakes);
  Released release(const Token& token, const ReleaseTerms& terms, ServerNow now,
                   WaiterNotifier& wakes);
  /// Evicts everybody, or the holds with this fence. Without `by` no trace of them is left.
  std::vector<HoldEntry> force(std::optional<Fence> fence, const std::optional<Who>& by,
                               ServerNow now, WaiterNotifier& wakes);
  void admit_waiters(ServerNow now, WaiterNotifier& wakes);
};

}  // namespace dlock::reference
