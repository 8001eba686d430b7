#pragma once

#include <sys/types.h>

#include "base/wait.hpp"

namespace dlock {

/// A process that is not dlock's: watched and signalled through a pidfd, so that it cannot come to
/// mean another one that got the same number later.
class WatchedProcess {
 public:
  /// Throws Error{usage}, one line without a place, for what cannot be watched for its end or may
  /// not be signalled: no such process, another user's, dlock itself, a thread of the kernel.
  explicit WatchedProcess(pid_t pid);

  pid_t pid() const { return pid_; }
  /// Readable once it has ended, reaped or not.
  int fd() const { return pidfd_.get(); }
  bool ended() const { return readable(pidfd_.get()); }
  /// False if it has ended, or has become another user's.
  bool send(int signal) const;

 private:
  pid_t pid_;
  Fd pidfd_;
};

}  // namespace dlock
