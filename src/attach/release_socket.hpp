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

/// Receives the announcements that locks of the attach daemon are about to be released. It is a
/// Unix socket without a file; its name is a hash of the token and does not reveal it. A client
/// must be the same user or root, and send the token.
class ReleaseSocket {
 public:
  /// Throws Error{host_refused}.
  explicit ReleaseSocket(Token token);

  /// The caller polls these fds before serve(), until open_by() at the latest.
  void add_to(std::vector<pollfd>& fds) const;
  Deadline open_by() const { return shut_until_.value_or(never); }
  /// Handles all messages that have arrived, without waiting.
  void serve(AttachedHolds& holds);

 private:
  struct ReleaseClient {
    Fd fd;
    std::optional<LockKey> releases;
  };

  void let_in();
  enum class Heard { something, nothing, end };
  Heard hear(ReleaseClient& visitor, AttachedHolds& holds) const;
  bool hear_request(ReleaseClient& visitor, const std::string& text, AttachedHolds& holds) const;

  Token token_;
  Fd listener_;
  std::vector<ReleaseClient> visitors_;
  std::optional<Deadline> shut_until_;  ///< accepts nothing until then: no descriptor was free
};

/// Whether an attach daemon on this host, in this network namespace, keeps the locks of this token.
bool is_attached(const Token& token);

/// Announces one release to the attach daemon, if there is one, so that it reports no loss.
class ReleaseNotice {
 public:
  /// Waits until the daemon has taken note; gives up after 2 s if the daemon is stopped.
  ReleaseNotice(const Token& token, const LockKey& key);
  /// Tells the daemon the engine's answer to the release. After a yes it returns once the daemon
  /// has dropped the key, and has ended if that was its last key. Without this call the daemon
  /// assumes that the release may or may not have been done.
  void answered(bool yes) const;

 private:
  Fd daemon_;
  bool noted_ = false;
};

}  // namespace dlock
