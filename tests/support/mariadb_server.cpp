#include "support/mariadb_server.hpp"

#include <signal.h>
#include <unistd.h>

#include "base/error.hpp"
#include "support/eventually.hpp"

namespace dlock::test {
namespace {

constexpr const char* program = "/usr/sbin/mariadbd";
constexpr const char* database_name = "locks";

// At its start, a server removes the files of others in its temporary directory.

/// Small, and without the durability that costs a database its time.
const std::vector<std::string> small_and_fast{
    "--innodb-log-file-size=4M", "--innodb-flush-method=nosync", "--innodb-buffer-pool-size=16M"};

}  // namespace

bool MariaDbServer::is_installed() { return access(program, X_OK) == 0; }

MariaDbServer::MariaDbServer(std::vector<std::string> config) : config_(std::move(config)) {
  user_.own(dir_.path());
  std::vector<std::string> argv{"mariadb-install-db",
                                "--no-defaults",
                                "--datadir=" + (dir_ / "data"),
                                "--tmpdir=" + dir_.path(),
                                "--auth-root-authentication-method=normal",
                                "--skip-test-db"};
  argv.insert(argv.end(), small_and_fast.begin(), small_and_fast.end());
  const Result made = run(argv, user_.options(SIGKILL));
  if (made.exit_code != 0) {
    throw Error(ErrorKind::host_refused, "mariadb-install-db: " + made.out);
  }
  start();
}

MariaDbServer::~MariaDbServer() { kill_hard(); }

void MariaDbServer::start() {
  std::vector<std::string> argv{program,
                                "--no-defaults",
                                "--datadir=" + (dir_ / "data"),
                                "--socket=" + (dir_ / "socket"),
                                "--tmpdir=" + dir_.path(),
                                "--pid-file=" + (dir_ / "pid"),
                                "--bind-address=127.0.0.1",
                                "--port=" + std::to_string(port_.number()),
                                "--skip-name-resolve",
                                "--max-connections=300"};
  argv.insert(argv.end(), small_and_fast.begin(), small_and_fast.end());
  // Not while the files are made: the first page may then be in no file, and recovery needs it.
  argv.emplace_back("--innodb-fast-shutdown=2");
  argv.insert(argv.end(), config_.begin(), config_.end());
  process_.emplace(argv, user_.options(SIGKILL));
  MysqlAddress any_database = address(false);
  any_database.database = "mysql";
  await_start(mysql_connection(any_database, "mariadb"));
  query("CREATE DATABASE IF NOT EXISTS " + std::string(database_name));
  connection_ = mysql_connection(address(false), "mariadb");
}

void MariaDbServer::kill_hard() {
  connection_.reset();
  if (!process_) return;
  process_->kill_hard();
  process_.reset();
}

void MariaDbServer::become_standby() { query("SET GLOBAL read_only = 1"); }

MysqlAddress MariaDbServer::address(bool by_tcp) const {
  MysqlAddress address;
  if (by_tcp) {
    address.host = "127.0.0.1";
    address.port = port_.number();
  } else {
    address.socket_path = dir_ / "socket";
  }
  address.database = database_name;
  address.user = "root";
  return address;
}

std::string MariaDbServer::url(const std::string& user, const std::string& database) const {
  return "mariadb://" + (user.empty() ? "root" : user) + "@/" +
         (database.empty() ? database_name : database) + "?socket=" + (dir_ / "socket");
}

std::string MariaDbServer::tcp_url(const std::string& login) const {
  return "mysql://" + login + "@127.0.0.1:" + std::to_string(port_.number()) + "/" + database_name;
}

void MariaDbServer::make_user(const std::string& name, const std::string& password,
                              bool creates_tables) {
  query("CREATE OR REPLACE USER " + name + " IDENTIFIED BY '" + password + "'");
  if (creates_tables) query("GRANT ALL ON " + std::string(database_name) + ".* TO " + name);
}

void MariaDbServer::let_read(const std::string& name) {
  query("GRANT SELECT ON " + std::string(database_name) + ".dlock TO " + name);
}

void MariaDbServer::set_bodies(const std::string& body) {
  query("UPDATE dlock SET body = '" + body + "'");
}

int MariaDbServer::connections() {
  return std::stoi(text("SELECT count(*) FROM information_schema.processlist WHERE db = '" +
                        std::string(database_name) + "' AND id <> CONNECTION_ID()"));
}

}  // namespace dlock::test
