#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sql/postgres_connection.hpp"
#include "support/process.hpp"
#include "support/temp_dir.hpp"

namespace dlock::test {

struct PostgresOptions {
  bool tcp = false;                   ///< also on a free port of 127.0.0.1
  std::vector<std::string> config{};  ///< further `name=value` for postgres -c
  std::string hba{};                  ///< in place of trust for everybody
};

/// A PostgreSQL server of the test's own, in its own directory, run by the user postgres where the
/// test is root; up when constructed and gone when destroyed.
class PostgresServer {
 public:
  /// Whether this machine has one.
  static bool is_installed();

  explicit PostgresServer(PostgresOptions options = {});
  ~PostgresServer();

  /// What dlock is given: by the socket, as the superuser unless another is named.
  std::string url(const std::string& user = "postgres",
                  const std::string& database = "postgres") const;
  std::string tcp_url() const;
  const std::string& directory() const { return dir_.path(); }
  int port() const { return port_; }
  pid_t pid() const { return process_->pid(); }
  std::string log() const { return process_->out(); }

  /// Sends statements on a connection of the server's own; their results. Error if one fails.
  std::vector<PostgresResult> query(const std::string& statements);
  /// The first column of the last result, line by line.
  std::string text(const std::string& statements);

  void kill_hard();  ///< as after a crash: no clean end
  void start();
  /// Restarts as the standby of a primary that it never reaches.
  void become_standby();

 private:
  PostgresOptions options_;
  TempDir dir_;
  int port_ = 0;
  std::optional<Process> process_;
  std::optional<PostgresConnection> connection_;
};

}  // namespace dlock::test
