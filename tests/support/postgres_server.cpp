#include "support/postgres_server.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.hpp"
#include "support/eventually.hpp"
#include "support/files.hpp"

namespace dlock::test {
namespace {

/// Debian keeps the programs of each version in a directory of its own.
std::string programs() {
  const std::filesystem::path all = "/usr/lib/postgresql";
  std::error_code none;
  for (const auto& version : std::filesystem::directory_iterator(all, none)) {
    if (access((version.path() / "bin/initdb").c_str(), X_OK) == 0) return version.path() / "bin";
  }
  return "";
}

CallOptions within_seconds() { return {later(BootClock::now(), std::chrono::seconds(10)), -1}; }

}  // namespace

bool PostgresServer::is_installed() { return !programs().empty(); }

PostgresServer::PostgresServer(PostgresOptions options) : options_(std::move(options)) {
  if (options_.tcp) tcp_port_.emplace();
  user_.own(dir_.path());
  const Result made = run({programs() + "/initdb", "-D", dir_ / "data", "-A", "trust", "-U",
                           "postgres", "-N", "-E", "UTF8", "--locale=C", "--no-instructions"},
                          user_.options(SIGQUIT));
  if (made.exit_code != 0) throw Error(ErrorKind::host_refused, "initdb: " + made.out);
  if (!options_.hba.empty()) std::ofstream(dir_ / "data/pg_hba.conf") << options_.hba;
  start();
}

PostgresServer::PostgresServer(const PostgresServer& primary) : options_(primary.options_) {
  if (options_.tcp) tcp_port_.emplace();
  user_.own(dir_.path());
  const Result made =
      run({programs() + "/pg_basebackup", "-D", dir_ / "data", "-R", "-c", "fast", "-N", "-h",
           primary.directory(), "-p", std::to_string(primary.port()), "-U", "postgres"},
          user_.options(SIGQUIT));
  if (made.exit_code != 0) throw Error(ErrorKind::host_refused, "pg_basebackup: " + made.out);
  start();
}

PostgresServer::~PostgresServer() { kill_hard(); }

void PostgresServer::start() {
  std::vector<std::string> argv{
      programs() + "/postgres", "-D", dir_ / "data", "-k", dir_.path(), "-p",
      std::to_string(port())};
  std::vector<std::string> config{
      "fsync=off", "max_connections=300", "shared_buffers=16MB",
      std::string("listen_addresses=") + (options_.tcp ? "127.0.0.1" : "")};
  config.insert(config.end(), options_.config.begin(), options_.config.end());
  for (const std::string& each : config) {
    argv.push_back("-c");
    argv.push_back(each);
  }
  process_.emplace(argv, user_.options(SIGQUIT));
  connection_.emplace(PostgresTerms{url(), {}, "postgres"});
  await_server(*connection_, "postgres", *process_);
}

void PostgresServer::kill_hard() {
  connection_.reset();
  if (!process_) return;
  process_->signal(SIGQUIT);
  process_->wait();
  process_.reset();
}

void PostgresServer::signal_all(int number) const {
  const std::string id = std::to_string(pid());
  // The stopped server cannot fork another process meanwhile.
  if (number == SIGKILL) kill(pid(), SIGSTOP);
  std::istringstream children(read_file("/proc/" + id + "/task/" + id + "/children"));
  std::vector<pid_t> all{pid()};
  for (pid_t child = 0; children >> child;) all.push_back(child);
  for (const pid_t each : all) kill(each, number);
  if (number != SIGKILL) return;
  const auto dead = [](pid_t each) { return !is_alive(each); };
  const bool ended = eventually([&] { return std::all_of(all.begin(), all.end(), dead); });
  if (!ended) throw Error(ErrorKind::bug, "a process of the server does not end");
}

pid_t PostgresServer::log_sender() {
  return std::stoi(
      text("SELECT coalesce(max(pid), 0) FROM pg_stat_replication WHERE state = 'streaming'"));
}

void PostgresServer::become_standby() {
  connection_.reset();
  process_->signal(SIGINT);  // a fast shutdown, as the standby cannot fetch missing log
  process_->wait();
  std::ofstream(dir_ / "data/standby.signal").flush();
  start();
}

std::string PostgresServer::url(const std::string& user, const std::string& database) const {
  return "postgres:///" + (database.empty() ? "postgres" : database) + "?host=" + dir_.path() +
         "&port=" + std::to_string(port()) + "&user=" + (user.empty() ? "postgres" : user);
}

std::string PostgresServer::tcp_url(const std::string& login) const {
  return "postgresql://" + login + "@127.0.0.1:" + std::to_string(port()) + "/postgres";
}

std::vector<PostgresResult> PostgresServer::query(const std::string& statements) {
  auto results = connection_->query(statements, within_seconds());
  for (const PostgresResult& result : results) {
    if (result.failed()) throw Error(ErrorKind::bug, statements + ": " + result.message());
  }
  return results;
}

std::string PostgresServer::text(const std::string& statements) {
  const auto results = query(statements);
  std::string text;
  for (int row = 0; row < results.back().rows(); ++row) {
    text += std::string(results.back().value(row, 0).value_or("")) + "\n";
  }
  return text;
}

void PostgresServer::make_user(const std::string& name, const std::string& password,
                               bool creates_tables) {
  query("DROP ROLE IF EXISTS " + name + "; CREATE ROLE " + name + " LOGIN PASSWORD '" + password +
        "'");
  if (creates_tables) query("GRANT ALL ON SCHEMA public TO " + name);
}

void PostgresServer::let_read(const std::string& name) {
  query("GRANT SELECT ON dlock TO " + name);
}

void PostgresServer::set_bodies(const std::string& body) {
  query("UPDATE dlock SET body = convert_to('" + body + "', 'UTF8')");
}

int PostgresServer::connections() {
  return std::stoi(
      text("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'dlock' AND pid <> "
           "pg_backend_pid()"));
}

}  // namespace dlock::test
