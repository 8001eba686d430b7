#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "base/wait.hpp"
#include "lock/lease_renewer.hpp"
#include "lock/store.hpp"

namespace dlock {

/// A process other than dlock, watched and signalled through a pidfd: a later process with the same
/// pid is never mistaken for it.
class WatchedProcess {
 public:
  /// Throws Error{usage}, one line without its source, if the process cannot be watched or
  /// signalled: it does not exist, belongs to another user, is dlock itself, or is a kernel thread.
  explicit WatchedProcess(pid_t pid);

  pid_t pid() const { return pid_; }
  /// Readable once the process has ended, reaped or not.
  int fd() const { return pidfd_.get(); }
  bool ended() const { return readable(pidfd_.get()); }
  /// Returns false if the process has ended or now belongs to another user.
  bool send(int signal) const;

 private:
  pid_t pid_;
  Fd pidfd_;
};

// The messages between the two sides of an AttachDaemon. "lost" means that a lock was lost, or that
// the daemon releases or has released its locks. "error " is followed by the ErrorKind, one byte,
// and the message; the daemon has released the locks then, too.
inline constexpr char daemon_keeps[] = "keeps";
inline constexpr char daemon_lost[] = "lost";
inline constexpr char daemon_error[] = "error ";
inline constexpr char daemon_commit[] = "commit";
inline constexpr std::size_t longest_daemon_message = 4096;

/// How long a release may take while another process waits for it.
inline constexpr milliseconds time_to_give_back{2000};

/// Runs the attach daemon in the forked child, and ends the process.
[[noreturn]] void run_attach_daemon(StorePtr store, const std::vector<Held>& held,
                                    const WatchedProcess& script, int loss_signal, Fd channel);

/// The process that `acquire --attach` leaves behind, seen from its parent. It keeps the locks
/// until the script has ended or has released them, and sends the script a signal if a lock is
/// lost. Until commit() it is on trial: if the parent ends, it releases the locks and ends, too.
class AttachDaemon {
 public:
  /// Forks, so the caller must have no other thread. From here on only the daemon uses the store,
  /// which outlives this object. If the daemon is killed on trial, the parent releases the locks
  /// through a store from `open_store`. If this throws an Error, the parent still has the locks.
  AttachDaemon(StorePtr& store, std::function<StorePtr()> open_store, const std::vector<Held>& held,
               const WatchedProcess& script, int loss_signal);

  enum class Start { keeps, lost, interrupted };
  /// Waits until the daemon keeps the locks; `interrupted` when `cancel_fd` is readable. Throws the
  /// Error with which the daemon failed; the locks are released then.
  Start await(int cancel_fd);
  /// The parent calls it after it has printed the token. Returns false if a lock was lost or the
  /// daemon already releases them. Throws Error{host_refused} if the daemon has ended.
  bool commit();
  /// Makes the daemon release the locks; returns when it has.
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
