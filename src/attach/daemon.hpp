#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "base/process.hpp"
#include "base/wait.hpp"
#include "lock/lease_renewer.hpp"
#include "lock/store.hpp"

namespace dlock {

/// A process that is not dlock's: watched and signalled through a pidfd, so that it cannot come to
/// mean another one that got the same number later.
class WatchedProcess {
 public:
  /// Throws Error{usage}, one line without a place, for what cannot be watched for its end or may
  /// not be signalled: no such process, another user's, dlock itself, a thread of the kernel.
  explicit WatchedProcess(pid_t pid);

  pid_t pid() const { return id_.pid; }
  const ProcessId& id() const { return id_; }
  /// Readable once it has ended, reaped or not.
  int fd() const { return pidfd_.get(); }
  bool ended() const { return readable(pidfd_.get()); }
  /// False if it has ended, or has become another user's.
  bool send(int signal) const;

 private:
  Fd pidfd_;
  ProcessId id_;
};

/// How long the locks may be tried to be given back while somebody waits for it.
inline constexpr milliseconds time_to_give_back{2000};

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
