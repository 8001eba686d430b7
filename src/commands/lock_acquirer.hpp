#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/settings.hpp"
#include "lock/acquire.hpp"
#include "output/json.hpp"
#include "output/log.hpp"
#include "supervise/signals.hpp"

namespace dlock {

/// The common part of `run` and `acquire`: it acquires the locks that the settings name, reports
/// the wait, and ends the wait on a signal.
class LockAcquirer {
 public:
  using OnWaiting = std::function<void(const LockKey&, const Refusal&)>;
  /// The options in which the two commands differ.
  struct Options {
    Who who;  ///< the holder that other clients see
    Liveness upkeep;
    int abandon_fd = -1;  ///< readable when the lock is no longer needed; -1: never
    milliseconds min_hold{0};
    std::optional<WallTime> until{};  ///< when the lease is to expire, so that no wait lasts longer
    bool unconfirmed = false;         ///< as in AcquireOptions
    OnWaiting on_waiting{};           ///< called whenever a wait begins; may be empty
  };
  LockAcquirer(const ClaimSettings& settings, const Log& log, Signals& signals, Options options);

  struct Result {
    std::vector<Held> held;         ///< in byte order of the keys; empty if not acquired
    std::optional<GaveUp> gave_up;  ///< the lock was not acquired; reported already
    std::string reason;             ///< the text of that report
    std::optional<int> signal;      ///< the signal that ended the wait
    bool abandoned = false;         ///< abandon_fd ended the wait
  };
  /// Acquires the locks. If dlock is stopped (^Z) during the wait, it leaves the queue, and queues
  /// again when it is continued. `-w` counts from the first call.
  Result acquire();

  /// The time since the first acquire(); zero before it.
  milliseconds waited() const { return begun_ ? passed_since(*begun_) : milliseconds(0); }

  Store& store() { return *store_; }
  /// A forked child that keeps using the store moves it out of here.
  StorePtr& store_ptr() { return store_; }
  const Owner& owner() const { return owner_; }
  /// The fences of `held`, in the order in which the user named the keys.
  std::vector<LockFence> fences(const std::vector<Held>& held) const;
  /// Closes the store, then calls dlock::die_of(): dying runs no destructor, and a store may have
  /// files to remove.
  [[noreturn]] void die_of(int signal);

 private:
  std::vector<Claim> claims() const;
  void name_waiter_ahead(const LockKey& key, Refusal& refusal);

  const ClaimSettings& settings_;
  const Log& log_;
  Signals& signals_;
  const Options options_;
  Owner owner_;
  StorePtr store_;
  std::optional<Deadline> begun_;  ///< the start of the first acquire()
};

/// The value of DLOCK_FENCE, separated by commas; nothing if a lock has no fence.
std::optional<std::string> fence_list(const std::vector<LockFence>& locks);

/// Reports that a holder was asked to stop, or why it cannot be asked.
void report_stop_request(const Log& log, const LockKey& key, const Holder& holder);

/// Reports how many of several servers have the lock: always with -v; otherwise, unless -q, only if
/// no more of them may fail or some are misnamed.
void report_margin(const Log& log, const LockKey& key, const QuorumMargin& margin);

/// Reports the errors of single servers: those of misnamed servers unless -q, all others with -v.
void report_troubles(const Log& log, Store& store);

}  // namespace dlock
