#include "chaos/database_pair.hpp"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "sql/mysql_backend.hpp"
#include "support/eventually.hpp"
#include "support/fault_proxy.hpp"
#include "support/mariadb_server.hpp"
#include "support/pgbouncer.hpp"

namespace dlock::test {
namespace {

void need(bool condition, const std::string& what) {
  if (!condition) throw Error(ErrorKind::bug, what);
}

constexpr milliseconds time_to_catch_up{60'000};

class PostgresPair final : public DatabasePair {
 public:
  PostgresPair() : primary_(std::make_unique<PostgresServer>()) {
    name_.lead_to(primary_->directory());
    pooler_ = std::make_unique<PgBouncer>(name_.path(), 5432, "transaction", 10);
    follow();
  }

  std::string url() const override {
    return "postgres:///postgres?host=" + name_.path() + "&port=5432&user=postgres";
  }
  std::string far_url() const override { return pooler_->url(); }

  void kill_sessions() override {
    primary_->text(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client "
        "backend' AND pid <> pg_backend_pid() AND random() < 0.5");
  }
  void restart_primary() override {
    kill_primary();
    primary_->start();
  }
  void stop_primary(milliseconds span) override {
    primary_->signal_all(SIGSTOP);
    std::this_thread::sleep_for(span);
    primary_->signal_all(SIGCONT);
  }
  void restart_pooler() override {
    pooler_->kill_hard();
    pooler_->start();
  }

  Failover fail_over(milliseconds unreplicated) override {
    // The pid must come from the last look: asked again, the server may name none, and a signal to
    // 0 stops the test and its whole process group.
    pid_t log_sender = 0;
    need(eventually([&] { return (log_sender = primary_->log_sender()) > 0; }, time_to_catch_up),
         "the standby does not stream");
    kill(log_sender, SIGSTOP);
    std::this_thread::sleep_for(unreplicated);
    const std::string written = primary_->text("SELECT pg_current_wal_flush_lsn() - '0/0'");
    const auto from = BootClock::now();
    kill_primary();
    const std::string received = standby_->text("SELECT pg_last_wal_receive_lsn() - '0/0'");
    standby_->text("SELECT pg_promote()");
    need(eventually([&] { return standby_->text("SELECT pg_is_in_recovery()") == "f\n"; }),
         "the standby was not promoted");
    name_.lead_to(standby_->directory());
    restart_pooler();
    const auto to = BootClock::now();
    primary_ = std::move(standby_);
    follow();
    return {from, to, std::stoll(received) < std::stoll(written)};
  }

 private:
  void follow() { standby_ = std::make_unique<PostgresServer>(*primary_); }
  void kill_primary() {
    primary_->signal_all(SIGKILL);
    primary_->kill_hard();
  }

  std::unique_ptr<PostgresServer> primary_;
  std::unique_ptr<PostgresServer> standby_;
  MovingName name_;
  std::unique_ptr<PgBouncer> pooler_;
};

class MariaDbPair final : public DatabasePair {
 public:
  MariaDbPair() {
    primary_ = std::make_unique<MariaDbServer>(options());
    primary_->query(std::string(mysql_schema()));
    move();
    proxy_ = std::make_unique<FaultProxy>(Address{name_.path(), 0});
    follow();
  }

  std::string url() const override { return url_by(name_.path()); }
  std::string far_url() const override { return url_by(proxy_->address().path); }

  void kill_sessions() override {
    std::istringstream ids(
        primary_->text("SELECT id FROM information_schema.processlist WHERE db = 'locks' AND id <> "
                       "CONNECTION_ID() AND rand() < 0.5"));
    for (std::string id; ids >> id;) {
      try {
        primary_->query("KILL " + id);
      } catch (const Error&) {
        // The session has ended by itself.
      }
    }
  }
  void restart_primary() override {
    primary_->kill_hard();
    primary_->start();
  }
  void stop_primary(milliseconds span) override {
    kill(primary_->pid(), SIGSTOP);
    std::this_thread::sleep_for(span);
    kill(primary_->pid(), SIGCONT);
  }
  void restart_pooler() override {
    proxy_->refuse(true);
    proxy_->reset_connections();
    proxy_->refuse(false);
  }

  Failover fail_over(milliseconds unreplicated) override {
    need(eventually([&] { return follows(); }, time_to_catch_up), "the standby does not follow");
    standby_->query("STOP SLAVE IO_THREAD");
    std::this_thread::sleep_for(unreplicated);
    const auto written = primary_->query("SHOW MASTER STATUS").back().rows.at(0)[1];
    const auto from = BootClock::now();
    primary_->kill_hard();
    const bool forgot = standby_state(read_position) != written;
    standby_->query("STOP SLAVE; RESET SLAVE ALL; SET GLOBAL read_only = 0");
    primary_ = std::move(standby_);
    move();
    const auto to = BootClock::now();
    follow();
    return {from, to, forgot};
  }

 private:
  std::vector<std::string> options() {
    return {"--log-bin=binary-log", "--binlog-format=ROW", "--log-slave-updates",
            "--server-id=" + std::to_string(++servers_)};
  }
  static std::string url_by(const std::string& socket) {
    return "mariadb://root@/locks?socket=" + socket;
  }
  void move() { name_.lead_to(primary_->address(false).socket_path); }

  /// Starts another standby, with the current rows.
  void follow() {
    standby_ = std::make_unique<MariaDbServer>(options());
    standby_->query(std::string(mysql_schema()));
    primary_->query("FLUSH TABLES WITH READ LOCK");
    const auto place = primary_->query("SHOW MASTER STATUS").back().rows.at(0);
    const auto rows = primary_->query("SELECT hex(name), version, ends, hex(body) FROM dlock");
    primary_->query("UNLOCK TABLES");
    for (const auto& row : rows.back().rows) {
      standby_->query("INSERT INTO dlock VALUES (x'" + *row[0] + "', " + *row[1] + ", " + *row[2] +
                      ", x'" + *row[3] + "')");
    }
    standby_->query("SET GLOBAL read_only = 1; CHANGE MASTER TO MASTER_HOST = '127.0.0.1', " +
                    ("MASTER_PORT = " + std::to_string(primary_->address(true).port)) +
                    ", MASTER_USER = 'root', MASTER_CONNECT_RETRY = 1, MASTER_LOG_FILE = '" +
                    *place[0] + "', MASTER_LOG_POS = " + *place[1] + "; START SLAVE");
  }
  bool follows() {
    return standby_state(io_running) == "Yes" && standby_state(seconds_behind) == "0";
  }
  std::optional<std::string> standby_state(std::size_t column) {
    return standby_->query("SHOW SLAVE STATUS").back().rows.at(0)[column];
  }

  // Columns of SHOW SLAVE STATUS.
  static constexpr std::size_t read_position = 6;
  static constexpr std::size_t io_running = 10;
  static constexpr std::size_t seconds_behind = 32;

  int servers_ = 0;
  std::unique_ptr<MariaDbServer> primary_;
  std::unique_ptr<MariaDbServer> standby_;
  MovingName name_;
  std::unique_ptr<FaultProxy> proxy_;
};

}  // namespace

void MovingName::lead_to(const std::string& target) const {
  chmod(dir_.path().c_str(), 0755);  // the pooler runs as another user
  const std::string fresh = dir_ / "next";
  std::filesystem::create_symlink(target, fresh);
  std::filesystem::rename(fresh, path());
}

std::unique_ptr<DatabasePair> postgres_pair() { return std::make_unique<PostgresPair>(); }
std::unique_ptr<DatabasePair> mariadb_pair() { return std::make_unique<MariaDbPair>(); }

}  // namespace dlock::test
