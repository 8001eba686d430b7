#pragma once

#include <sys/types.h>

#include <cstddef>
#include <vector>

#include "base/fd.hpp"
#include "base/process_identity.hpp"
#include "base/wait.hpp"
#include "lock/lease_renewer.hpp"
#include "lock/store.hpp"

namespace dlock {

/// A process that dlock did not start. dlock watches and signals it through a pidfd, because its
/// pid may be reused.
class WatchedProcess {
 public:
  /// Throws Error{usage} if dlock cannot watch the process or may not signal it: there is no such
  /// process, or it is another user's or dlock itself.
  explicit WatchedProcess(pid_t pid);

  pid_t pid() const { return id_.pid; }
  const ProcessId& id() const { return id_; }
  /// Readable once the process has ended, reaped or not.
  int fd() const { return pidfd_.get(); }
  bool ended() const { return readable(pidfd_.get()); }
  /// Returns false if the process has ended or now belongs to another user.
  bool send(int signal) const;

 private:
  Fd pidfd_;
  ProcessId id_;
};

/// How long dlock repeats a release while a user or a script waits for the result.
inline constexpr milliseconds time_to_release{2000};

/// The process that `acquire --attach` leaves behind, as seen by its parent. It keeps the locks
/// until the script has ended or has released them, and signals the script if a lock is lost.
/// Until commit() it is on trial: if its parent ends, it releases the locks and ends too.
class AttachDaemon {
 public:
  /// Forks, so the caller must be the only thread. From then on the daemon uses the store, which
  /// must outlive this object. If this throws an Error, the caller still holds the locks.
  AttachDaemon(StorePtr& store, const std::vector<Held>& held, const WatchedProcess& script,
               int loss_signal);

  enum class Start { keeps, lost, interrupted };
  /// Waits until the daemon keeps the locks; `interrupted` when `cancel_fd` is readable. If the
  /// daemon failed, throws the daemon's Error; the locks are then released.
  Start await(int cancel_fd);
  /// The parent calls commit() after it has printed the token. Returns false if a lock was lost or
  /// the daemon is releasing the locks. Throws Error{host_refused} if the daemon has ended.
  bool commit();
  /// Ends the daemon; returns when the daemon has released the locks, or after a time limit.
  void dismiss();

 private:
  [[noreturn]] static void ended_too_soon();

  std::size_t locks_;
  Fd channel_;
};

}  // namespace dlock
