#pragma once

#include <functional>
#include <vector>

#include "base/fd.hpp"
#include "lock/lease_renewer.hpp"
#include "lock/store.hpp"
#include "supervise/watched_process.hpp"

namespace dlock {

/// The process that `acquire --attach` leaves behind, as the one that leaves sees it. It keeps the
/// locks until the script has ended or has released them, and sends the script a signal if one is
/// lost. Until commit() it is on trial: whatever becomes of us, it gives the locks back and ends.
class AttachDaemon {
 public:
  /// Forks, so there must be one thread; the store is the daemon's from here on, and outlives this.
  /// If the daemon is killed on trial, `open_store` takes its place and the locks are given back.
  /// Throws an Error with the locks still ours.
  AttachDaemon(StorePtr& store, std::function<StorePtr()> open_store, const std::vector<Held>& held,
               const WatchedProcess& script, int loss_signal);

  enum class Start { keeps, lost, interrupted };
  /// Waits until it keeps the locks; `interrupted` when `cancel_fd` is readable. Throws the
  /// Error that it failed with; then the locks have been given back.
  Start await(int cancel_fd);
  /// To be called once the token is printed. False if a lock was lost, or the daemon releases them
  /// already. Throws Error{host_refused} if the daemon has ended.
  bool commit();
  /// The locks are not wanted after all; returns when they have been given back.
  void dismiss();

 private:
  bool give_back_in_its_place();
  [[noreturn]] void ended_too_soon();

  StorePtr& store_;
  std::function<StorePtr()> open_store_;
  std::vector<Held> held_;
  Fd channel_;
};

}  // namespace dlock
