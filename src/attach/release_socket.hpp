#pragma once

#include <sys/types.h>

#include "attach/attached_holds.hpp"
#include "base/clock.hpp"
#include "base/fd.hpp"
#include "lock/claim.hpp"

namespace dlock {

/// The socket on which `dlock release` announces a release to the attach daemon, before it asks the
/// engine. It is a Unix socket without a file. Its name is derived from the token but does not
/// reveal the token. A client must run as the same user or root, and must send the token.
class ReleaseSocket {
 public:
  /// Throws Error{host_refused} if the socket cannot be opened.
  explicit ReleaseSocket(Token token);

  /// The daemon calls serve() when fd() is readable, and at open_by() at the latest.
  int fd() const { return shut_until_ == never ? listener_.get() : -1; }
  Deadline open_by() const { return shut_until_; }
  /// Reads the message of one client that has connected, and applies it to `holds`. A client that
  /// sends none costs a tenth of a second, so the daemon does not serve several at once.
  void serve(AttachedHolds& holds);

 private:
  void hear(Fd client, AttachedHolds& holds);

  Token token_;
  Fd listener_;
  Fd last_client_;  ///< has released the last key, and waits for the end of this process
  Deadline shut_until_ = never;  ///< when to accept again, after no descriptor was free
};

/// Whether an attach daemon in this network namespace keeps the locks of this token.
bool is_attached(const Token& token);

/// Announces one release to the attach daemon, if there is one; otherwise the daemon would report
/// the released lock as lost.
class ReleaseNotice {
 public:
  /// Waits until the daemon has noted the release; about two seconds at most, if it is stopped.
  ReleaseNotice(const Token& token, const LockKey& key);
  /// Tells the daemon whether the engine has released the lock; false also if dlock did not ask it.
  /// After true, returns when the daemon has dropped the key, and has ended if it keeps no other.
  /// If the caller never calls answered(), the daemon takes the result for unknown.
  void answered(bool yes) const;

 private:
  const Token& token_;
  const LockKey& key_;
  ssize_t noted_;  ///< positive: the daemon has noted the release; 0: no daemon keeps this key
};

}  // namespace dlock
