#pragma once

#include <optional>
#include <string>
#include <vector>

#include "support/database_server.hpp"
#include "support/sockets.hpp"
#include "support/temp_dir.hpp"

namespace dlock::test {

/// A MariaDB server in a directory of its own, for one test; it runs as the user mysql if the test
/// is root. It is up when constructed and removed when destroyed. It listens on a socket and on a
/// free port of 127.0.0.1.
class MariaDbServer final : public DatabaseServer {
 public:
  /// Whether this machine has MariaDB installed.
  static constexpr const char* package = "mariadb-server";  ///< in Debian
  static bool is_installed();

  /// `config` has further options of mariadbd.
  explicit MariaDbServer(std::vector<std::string> config = {});
  ~MariaDbServer() override;

  std::string url(const std::string& user = {}, const std::string& database = {}) const override;
  std::string tcp_url(const std::string& login) const override;
  std::string password_variable() const override { return "MYSQL_PWD"; }
  std::string log() const override { return process_->out(); }
  pid_t pid() const { return process_->pid(); }
  /// The address for a client: as root, over TCP or the socket.
  MysqlAddress address(bool by_tcp) const;

  void make_user(const std::string& name, const std::string& password,
                 bool creates_tables) override;
  void let_read(const std::string& name) override;
  void set_bodies(const std::string& body) override;
  int connections() override;

  void kill_hard() override;
  void start() override;
  void become_standby() override;

 private:
  std::vector<std::string> config_;
  ServiceUser user_{"mysql"};
  TempDir dir_;
  UnusedPort port_;
  std::optional<Process> process_;
};

}  // namespace dlock::test
