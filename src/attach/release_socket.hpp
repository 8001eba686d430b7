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

/// Where the process that `acquire --attach` left behind hears that its locks are about to be
/// released: a Unix socket without a file, whose name can be had from the token alone and does not
/// tell it. Whoever knocks must be the same user or root, and show the token.
class ReleaseSocket {
 public:
  /// Throws Error{host_refused}.
  explicit ReleaseSocket(Token token);

  /// What to poll before serve(), and until when at most.
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
  /// False if the client has said all.
  bool hear(ReleaseClient& client, AttachedHolds& holds) const;

  Token token_;
  Fd listener_;
  std::vector<ReleaseClient> clients_;
  std::optional<Deadline> shut_until_;  ///< there was no descriptor for a client
};

/// Whether a process of `acquire --attach` keeps the locks of this token, seen from here.
bool is_attached(const Token& token);

/// One release as the daemon is told of it, if there is one: it will not take it for a loss.
class ReleaseNotice {
 public:
  /// Waits until the daemon has taken note, but not for one that is stopped.
  ReleaseNotice(const Token& token, const LockKey& key);
  /// Tells the daemon the engine's answer to the release. After a yes, returns once the daemon has
  /// dropped the key, and has ended if it was its last. Not called, the release may have been done
  /// or not.
  void answered(bool yes) const;

 private:
  Fd daemon_;
  bool noted_ = false;
};

}  // namespace dlock
