#pragma once

#include <poll.h>

#include <optional>
#include <string>
#include <vector>

#include "attach/attached_holds.hpp"
#include "base/clock.hpp"
#include "base/wait.hpp"
#include "lock/claim.hpp"

namespace dlock {

/// The socket on which `dlock release` tells the attach daemon that it is about to release a lock.
/// It is a Unix socket without a file. Its name follows from the token and does not reveal it. A
/// client must be the same user or root, and must show the token.
class ReleaseSocket {
 public:
  /// Throws Error{host_refused}.
  explicit ReleaseSocket(Token token);

  /// Appends the descriptors to poll before serve(), which must be called at open_by() at the
  /// latest.
  void add_to(std::vector<pollfd>& fds) const;
  Deadline open_by() const { return shut_until_.value_or(never); }
  /// Takes what has arrived, without waiting.
  void serve(AttachedHolds& holds);

 private:
  struct ReleaseClient {
    Fd fd;
    std::optional<LockKey> releases;
  };

  void accept_clients();
  /// False if no further message is expected.
  bool hear(ReleaseClient& client, AttachedHolds& holds) const;

  Token token_;
  Fd listener_;
  std::vector<ReleaseClient> clients_;
  std::optional<Deadline> shut_until_;  ///< there was no descriptor for a client
};

/// Whether an attach daemon in this network namespace keeps the locks of this token.
bool is_attached(const Token& token);

/// Announces one release to the attach daemon, if there is one, which would take it for a loss.
class ReleaseNotice {
 public:
  /// Waits until the daemon has noted the release, but not for a daemon that is stopped.
  ReleaseNotice(const Token& token, const LockKey& key);
  /// Tells the daemon the engine's answer to the release. After a yes it returns when the daemon
  /// has dropped the key, and has ended if that was its last key. If it is never called, the daemon
  /// takes the result for unknown.
  void answered(bool yes) const;

 private:
  Fd daemon_;
  bool noted_ = false;
};

}  // namespace dlock
