#pragma once

#include <optional>
#include <string>
#include <vector>

#include "support/database_server.hpp"
#include "support/process.hpp"
#include "support/sockets.hpp"
#include "support/temp_dir.hpp"

namespace dlock::test {

struct PostgresOptions {
  bool tcp = false;                   ///< also on a free port of 127.0.0.1
  std::vector<std::string> config{};  ///< further `name=value` for postgres -c
  std::string hba{};                  ///< replaces the rule that trusts everybody
};

/// A PostgreSQL server in a directory of its own, for one test; it runs as the user postgres if the
/// test is root. It is up when constructed and removed when destroyed.
class PostgresServer final : public DatabaseServer {
 public:
  /// Whether this machine has PostgreSQL installed.
  static constexpr const char* package = "postgresql";  ///< in Debian
  static bool is_installed();

  explicit PostgresServer(PostgresOptions options = {});
  /// A standby that follows `primary` asynchronously.
  explicit PostgresServer(const PostgresServer& primary);
  ~PostgresServer() override;

  std::string url(const std::string& user = {}, const std::string& database = {}) const override;
  std::string tcp_url(const std::string& login) const override;
  std::string password_variable() const override { return "PGPASSWORD"; }
  const std::string& directory() const { return dir_.path(); }
  int port() const { return tcp_port_ ? tcp_port_->number() : 5432; }
  pid_t pid() const { return process_->pid(); }
  std::string log() const override { return process_->out(); }

  void make_user(const std::string& name, const std::string& password,
                 bool creates_tables) override;
  void let_read(const std::string& name) override;
  void set_bodies(const std::string& body) override;
  int connections() override;

  void kill_hard() override;
  /// Sends a signal to all its processes. After SIGKILL it returns when all are dead.
  void signal_all(int number) const;
  /// The process that sends the log to a standby; 0 if none does.
  pid_t log_sender();
  void start() override;
  void become_standby() override;

 private:
  PostgresOptions options_;
  ServiceUser user_{"postgres"};
  TempDir dir_;
  std::optional<UnusedPort> tcp_port_;
  std::optional<Process> process_;
};

}  // namespace dlock::test
