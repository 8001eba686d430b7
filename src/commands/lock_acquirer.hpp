#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "config/settings.hpp"
#include "lock/acquire.hpp"
#include "output/json.hpp"
#include "output/log.hpp"
#include "supervise/signals.hpp"

namespace dlock {

/// What `run` and `acquire` have in common: from settings to locks held, with what is to be told on
/// the way, and signals that end the waiting.
class LockAcquirer {
 public:
  /// The terms in which the commands differ.
  struct Terms {
    Who who;  ///< what others will see
    Liveness upkeep;
    int abandon_fd = -1;  ///< becomes readable when nobody needs the lock any more; -1: never
    milliseconds min_hold{0};
    bool unconfirmed = false;  ///< as AcquireTerms has it
  };
  LockAcquirer(const ClaimSettings& settings, const Log& log, Signals& signals, Terms terms);

  /// Called whenever a wait begins.
  using OnWaiting = std::function<void(const LockKey&, const Refusal&)>;
  void on_waiting(OnWaiting call) { on_waiting_ = std::move(call); }

  struct Result {
    std::vector<Held> held;  ///< in byte order of the keys; empty if not had
    std::optional<GaveUp> gave_up;
    std::optional<int> signal;  ///< the signal that ended the waiting
    bool abandoned = false;     ///< abandon_fd did
    milliseconds waited{0};
  };
  /// Acquires once; a stop (^Z) meanwhile leaves the queue and begins again when continued. `-w`
  /// counts from the first call.
  Result acquire();

  /// Since the first acquire(), if it has begun.
  milliseconds waited() const { return begun_ ? passed_since(*begun_) : milliseconds(0); }

  Store& store() { return *store_; }
  /// A forked child that goes on with it takes it from here.
  StorePtr& store_ptr() { return store_; }
  const Owner& owner() const { return owner_; }
  /// The fences of `held`, in the order the user named the keys.
  std::vector<LockFence> fences(const std::vector<Held>& held) const;
  /// As the function of this name, but closes the store first: dying runs no destructor, and a
  /// store may have files to remove.
  [[noreturn]] void die_of(int signal);

 private:
  std::vector<Claim> claims() const;
  void name_waiter_ahead(const LockKey& key, Refusal& refusal);

  const ClaimSettings& settings_;
  const Log& log_;
  Signals& signals_;
  const Terms terms_;
  Owner owner_;
  StorePtr store_;
  OnWaiting on_waiting_;
  std::optional<Deadline> begun_;  ///< the first acquire()
};

/// As DLOCK_FENCE shows them: a comma between several. Nothing where a lock has none.
std::optional<std::string> fence_list(const std::vector<LockFence>& locks);

/// Tells on how many of several servers a lock stands: unless -q where no more of them may fail
/// or some are misnamed, else with -v.
void tell_margin(const Log& log, const LockKey& key, const QuorumMargin& margin);

/// Tells what was wrong with single servers of several: with -v, but if they are misnamed unless
/// -q.
void tell_troubles(const Log& log, Store& store);

/// Tells on stderr why it was not had, unless -q.
void tell_refusal(const Log& log, const GaveUp& gave_up, milliseconds waited);

}  // namespace dlock
