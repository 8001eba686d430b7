#pragma once

#include <optional>
#include <string>

#include "support/database_server.hpp"
#include "support/postgres_server.hpp"
#include "support/process.hpp"
#include "support/temp_dir.hpp"

namespace dlock::test {

/// A PgBouncer in front of a PostgresServer, for one test; it runs as the user postgres if the test
/// is root. It is up when constructed and removed when destroyed. It listens on a socket.
class PgBouncer {
 public:
  /// Whether this machine has PgBouncer installed.
  static constexpr const char* package = "pgbouncer";  ///< in Debian
  static bool is_installed();

  /// In front of the server with its socket in the directory `host`. `mode` is `session` or
  /// `transaction`; `sessions` limits its connections to the server.
  PgBouncer(const std::string& host, int port, const std::string& mode, int sessions);
  PgBouncer(const PostgresServer& server, const std::string& mode, int sessions)
      : PgBouncer(server.directory(), server.port(), mode, sessions) {}
  ~PgBouncer() { kill_hard(); }
  PgBouncer(const PgBouncer&) = delete;
  PgBouncer& operator=(const PgBouncer&) = delete;

  std::string url() const;
  /// The directory of its socket; its port is 5432.
  const std::string& directory() const { return dir_.path(); }

  void kill_hard();
  void start();

 private:
  ServiceUser user_{"postgres"};
  TempDir dir_;
  std::optional<Process> process_;
};

}  // namespace dlock::test
