#pragma once

#include <map>
#include <optional>
#include <variant>
#include <vector>

#include "base/clock.hpp"
#include "lock/claim.hpp"
#include "lock/grant.hpp"
#include "lock/store.hpp"
#include "rule/admission.hpp"

namespace dlock::reference {

/// How far from the server's clock a proposed fence may be.
constexpr std::chrono::seconds furthest_proposal{60};

/// A moment on a server, whose only clock serves leases, the queue and fences.
struct ServerNow {
  microseconds clock{0};
  /// How long a lease that the server has forgotten may still last. Until then the server admits
  /// only owners that hold the key already, and tells all others when to ask again. 0: it remembers
  /// everything.
  microseconds quarantine{0};
  /// Whether the server is a node of a majority. No node need see all readers and all owners of
  /// semaphore seats, so each node keeps them apart.
  bool is_node = false;
};

/// A server's notes about a waiter, in addition to the entry of the rule.
struct WaiterNotes {
  std::optional<Fence> proposal{};  ///< of its last request
  /// The fence of a hold that other nodes remember; the waiter is then admitted without a message.
  std::optional<Fence> reserved{};
  /// Nobody listened to its message: it keeps its position until this time.
  std::optional<microseconds> absent_until{};
};

/// The options of a release.
struct ReleaseTerms {
  bool unsure = false;  ///< an unanswered acquire of this token may still come
  bool ignore_floor = false;
  milliseconds tombstone{0};  ///< with `unsure`: how long the token must not be granted
  std::optional<int> exit_code{};
};

/// One key as src/redis/lock stores it: the rule of src/rule, with the additions of a single server
/// or a node of a majority. Tests compare the script with it, and the simulator makes its servers
/// from it. Each call processes the whole queue, however long it is.
struct RedisTable {
  LockTable stored{};
  std::map<Token, WaiterNotes> notes{};  ///< of the waiters
  /// How long a waiter without a listener keeps its position: it has asked for the first time and
  /// will listen with its next request, or its connection broke. 0: it leaves the queue at once.
  milliseconds longest_absence{1000};

  /// A new owner's fence is max(last + 1, `proposal`), with the proposal limited to
  /// furthest_proposal from the clock. The default proposal is the clock.
  std::variant<Granted, Refused> acquire(const Claim& claim, const Ask& ask, ServerNow now,
                                         WaiterNotifier& wakes, std::optional<Fence> proposal = {});
  /// If the hold's fence is smaller than `raise_to` and the last fence is not larger, both become
  /// `raise_to`.
  std::optional<milliseconds> renew(const Token& token, std::optional<milliseconds> ttl,
                                    ServerNow now, WaiterNotifier& wakes,
                                    std::optional<Fence> raise_to = {});
  /// Records a hold that other nodes granted with `fence`, past the queue and the quarantine, but
  /// not beside another owner, and not for a token that was released. The last fence becomes at
  /// least `fence`. If another owner holds the key, the claim is first in the queue.
  std::optional<Granted> rejoin(const Claim& claim, Fence fence, ServerNow now,
                                WaiterNotifier& wakes);
  Released release(const Token& token, const ReleaseTerms& terms, ServerNow now,
                   WaiterNotifier& wakes);
  /// Evicts holds, or asks their holders to stop.
  std::vector<HoldEntry> force(const Eviction& how, ServerNow now, WaiterNotifier& wakes);
  void admit_waiters(ServerNow now, WaiterNotifier& wakes);
};

}  // namespace dlock::reference
