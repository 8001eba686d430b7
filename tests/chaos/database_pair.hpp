#pragma once

#include <memory>
#include <string>

#include "base/clock.hpp"
#include "support/temp_dir.hpp"

namespace dlock::test {

/// A database for locks with an asynchronous standby, and the failures of both. Each call returns
/// once the failure has happened and the primary accepts locks again. One thread uses it.
class DatabasePair {
 public:
  virtual ~DatabasePair() = default;

  /// The URL at which clients find the primary, now and after each fail_over().
  virtual std::string url() const = 0;
  /// The same through a pooler or a proxy.
  virtual std::string far_url() const = 0;

  /// Ends the sessions of some clients.
  virtual void kill_sessions() = 0;
  /// Kills the primary with SIGKILL, and starts it again.
  virtual void restart_primary() = 0;
  /// Sends SIGSTOP to the primary, and SIGCONT after this time.
  virtual void stop_primary(milliseconds span) = 0;
  virtual void restart_pooler() = 0;

  struct Failover {
    Deadline from;  ///< the primary was killed
    Deadline to;    ///< the clients find the new one
    bool forgot;    ///< the new one lacks commits
  };
  /// Promotes the standby, which lacks the commits of the last `unreplicated`. The old primary
  /// never comes back. Another standby is started.
  virtual Failover fail_over(milliseconds unreplicated) = 0;
};

std::unique_ptr<DatabasePair> postgres_pair();
std::unique_ptr<DatabasePair> mariadb_pair();

/// A name that always leads to the current server.
class MovingName {
 public:
  void lead_to(const std::string& target) const;
  std::string path() const { return dir_ / "it"; }

 private:
  TempDir dir_;
};

}  // namespace dlock::test
