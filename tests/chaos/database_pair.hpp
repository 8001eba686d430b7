#pragma once

#include <memory>
#include <string>

#include "base/clock.hpp"
#include "support/temp_dir.hpp"

namespace dlock::test {

/// A database for locks with an asynchronous standby, and what may happen to both. All calls return
/// once it has happened and the primary takes locks again. One thread uses it.
class DatabasePair {
 public:
  virtual ~DatabasePair() = default;

  /// Where clients find the primary, now and after each fail_over().
  virtual std::string url() const = 0;
  /// The same through what stands between: a pooler, or a proxy.
  virtual std::string far_url() const = 0;

  /// Ends the sessions of some clients.
  virtual void kill_sessions() = 0;
  /// kill -9, and starts it again.
  virtual void restart_primary() = 0;
  /// SIGSTOP, and SIGCONT after this time.
  virtual void stop_primary(milliseconds span) = 0;
  virtual void restart_pooler() = 0;

  struct Failover {
    Deadline from;  ///< the primary was killed
    Deadline to;    ///< the clients find the new one
    bool forgot;    ///< the new one lacks commits
  };
  /// The standby becomes the primary without what was committed in the last `unreplicated`; the
  /// old primary never comes back. Another standby takes its place.
  virtual Failover fail_over(milliseconds unreplicated) = 0;
};

std::unique_ptr<DatabasePair> postgres_pair();
std::unique_ptr<DatabasePair> mariadb_pair();

/// A name that always leads to the same server, whichever that is.
class MovingName {
 public:
  void lead_to(const std::string& target) const;
  std::string path() const { return dir_ / "it"; }

 private:
  TempDir dir_;
};

}  // namespace dlock::test
