#pragma once

#include <optional>
#include <string>

#include "support/postgres_server.hpp"
#include "support/process.hpp"
#include "support/service_user.hpp"
#include "support/temp_dir.hpp"

namespace dlock::test {

/// A PgBouncer of the test's own in front of a PostgresServer, run by the user postgres where the
/// test is root; up when constructed and gone when destroyed. It listens on a socket.
class PgBouncer {
 public:
  /// Whether this machine has one.
  static constexpr const char* package = "pgbouncer";  ///< of Debian
  static bool is_installed();

  /// In front of the server whose socket lies in `host`. `mode`: `session` or `transaction`;
  /// `sessions`: as many to the server at most.
  PgBouncer(const std::string& host, int port, const std::string& mode, int sessions);
  PgBouncer(const PostgresServer& server, const std::string& mode, int sessions)
      : PgBouncer(server.directory(), server.port(), mode, sessions) {}
  ~PgBouncer() { kill_hard(); }
  PgBouncer(const PgBouncer&) = delete;
  PgBouncer& operator=(const PgBouncer&) = delete;

  std::string url() const;
  /// Where its socket lies; its port is 5432.
  const std::string& directory() const { return dir_.path(); }

  void kill_hard();
  void start();

 private:
  ServiceUser user_{"postgres"};
  TempDir dir_;
  std::optional<Process> process_;
};

}  // namespace dlock::test
