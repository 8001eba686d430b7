#pragma once

#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.hpp"
#include "lock/lease_renewer.hpp"
#include "lock/outage.hpp"
#include "lock/store.hpp"

namespace dlock {

/// Told by acquire() how the wait goes; made by the command.
class AcquireListener : public ServerListener {
 public:
  /// When the waiting for a key begins; once more where all has to begin again.
  virtual void waiting(const LockKey& key, const Refusal& refusal) = 0;
  /// At each further answer, until the claim is granted.
  virtual void still_waiting(const LockKey&, const Refusal&) {}
  virtual void let_in(const LockKey& key, milliseconds waited) = 0;
};

/// The claims were not acquired in time.
struct GaveUp {
  LockKey key;
  Refusal refusal;
  bool waited = false;
};

/// The interrupting fd became readable; nothing is held or queued.
struct Interrupted {
  bool reached = false;  ///< the server has answered
};

using Acquired = std::variant<std::vector<Held>, GaveUp, Interrupted>;

/// How acquire() goes about it.
struct AcquireTerms {
  std::optional<milliseconds> wait;  ///< nothing: for ever; zero: ask once
  int cancel_fd = -1;
  std::function<StorePtr()> open_second;  ///< another connection to the same place, to renew by
                                          ///< while the first one waits
  /// Whether the server may grant a single key by a message alone, while its lease is known to
  /// last: then the grant is not confirmed, and the caller has to renew it at once.
  bool unconfirmed = false;
  /// The server has answered an earlier part of the same wait, see Interrupted.
  bool reached = false;
};

/// Takes all of `claims` or none, in byte order of their keys, so that two users of the same keys
/// cannot dead-lock. Those had are renewed while the next is waited for; if one of them is lost,
/// all are given back and it begins again. A server that goes away while we wait is tried again for
/// as long as we may wait, and so is one that was never reached if `wait` is given; else that is
/// Error{unavailable}.
Acquired acquire(Store& store, std::vector<Claim> claims, const AcquireTerms& terms,
                 AcquireListener& listener);

}  // namespace dlock
