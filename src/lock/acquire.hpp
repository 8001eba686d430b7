#pragma once

#include <functional>
#include <optional>
#include <variant>
#include <vector>

#include "base/clock.hpp"
#include "lock/lease_renewer.hpp"
#include "lock/outage.hpp"
#include "lock/store.hpp"

namespace dlock {

/// The command implements this interface; acquire() calls it to report how the wait goes.
class AcquireListener : public ServerListener {
 public:
  /// The claim for this key is refused, and waits; called for each refusal.
  virtual void waiting(const LockKey& key, const Refusal& refusal) = 0;
  /// These holders were asked to stop, see AcquireOptions::preempt.
  virtual void preempted(const LockKey&, const std::vector<Holder>&) {}
  /// The key is acquired after a wait.
  virtual void on_acquired(const LockKey& key) = 0;
};

/// The claims were refused, or not acquired in time.
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

/// The options of acquire().
struct AcquireOptions {
  std::optional<milliseconds> wait;  ///< empty: wait for ever; zero: ask once
  int cancel_fd = -1;
  std::function<StorePtr()> open_second;  ///< opens another connection to the same engine, to renew
                                          ///< while the first one waits
  /// Whether the server may grant a single key by a message only. The grant is then not confirmed:
  /// its lease is known to last, but the caller must renew it at once.
  bool unconfirmed = false;
  /// Whether a client that begins to wait asks the holders to stop.
  bool preempt = false;
  /// The server has answered an earlier part of the same wait, see Interrupted.
  bool reached = false;
  Deadline give_up_at = never;  ///< ends the wait, too
};

/// Acquires all of `claims` or none, in byte order of their keys, so that two users of the same
/// keys cannot deadlock. While it waits for one key, it renews those already acquired; if one of
/// them is lost, it releases all and starts over. If the server becomes unreachable during the
/// wait, acquire() retries until the wait ends. It also does so for a server that it has never
/// reached, but only if `wait` is given; otherwise it throws Error{unavailable}.
Acquired acquire(Store& store, std::vector<Claim> claims, const AcquireOptions& options,
                 AcquireListener& listener);

}  // namespace dlock
