#include "support/redis_server.hpp"

#include <hiredis/hiredis.h>
#include <signal.h>

#include <cstdlib>
#include <memory>
#include <utility>

#include "base/error.hpp"
#include "support/eventually.hpp"
#include "support/files.hpp"

namespace dlock::test {
namespace {

constexpr timeval reply_within{20, 0};

std::string server_program() {
  const char* named = std::getenv("DLOCK_TEST_REDIS_SERVER");
  return named == nullptr || *named == '\0' ? "redis-server" : named;
}

Reply plain(const redisReply& raw) {
  Reply reply;
  if (raw.type == REDIS_REPLY_INTEGER) {
    reply.kind = Reply::Kind::number;
    reply.number = raw.integer;
  } else if (raw.type == REDIS_REPLY_ARRAY) {
    reply.kind = Reply::Kind::array;
    for (std::size_t i = 0; i < raw.elements; ++i) reply.items.push_back(plain(*raw.element[i]));
  } else if (raw.str != nullptr) {
    reply.kind = raw.type == REDIS_REPLY_ERROR    ? Reply::Kind::error
                 : raw.type == REDIS_REPLY_STATUS ? Reply::Kind::status
                                                  : Reply::Kind::text;
    reply.text.assign(raw.str, static_cast<std::size_t>(raw.len));
  }
  return reply;
}

using Connection = std::unique_ptr<redisContext, decltype(&redisFree)>;

/// Sends one command and returns its reply; nothing if the connection failed or no reply came.
std::optional<Reply> ask(redisContext& connection, const std::vector<std::string>& words) {
  std::vector<const char*> argv;
  std::vector<std::size_t> sizes;
  for (const auto& word : words) {
    argv.push_back(word.data());
    sizes.push_back(word.size());
  }
  const std::unique_ptr<void, decltype(&freeReplyObject)> raw(
      redisCommandArgv(&connection, static_cast<int>(argv.size()), argv.data(), sizes.data()),
      &freeReplyObject);
  if (raw == nullptr) return std::nullopt;
  return plain(*static_cast<const redisReply*>(raw.get()));
}

Connection connect_unix(const std::string& path) {
  Connection connection(redisConnectUnixWithTimeout(path.c_str(), reply_within), &redisFree);
  if (connection != nullptr && connection->err == 0) {
    redisSetTimeout(connection.get(), reply_within);
  } else {
    connection.reset();
  }
  return connection;
}

}  // namespace

int major_version_of_redis() {
  static const int major = [] {
    const std::string told = run({server_program(), "--version"}).out;
    const auto at = told.find("v=");
    return at == std::string::npos ? 0 : std::atoi(told.c_str() + at + 2);
  }();
  return major;
}

RedisServer::RedisServer(RedisOptions options)
    : options_(std::move(options)), port_(options_.port) {
  for (const auto& [name, text] : options_.files) write_file(dir_ / name, text);
  if (options_.tcp) port_ = kept_port_.emplace().number();
  if (options_.tls) tls_port_ = kept_tls_port_.emplace().number();
  start();
}

std::string RedisServer::config_text() const {
  std::string text = "dir " + dir_.path() + "\nunixsocket " + socket_path() +
                     "\nbind 127.0.0.1\nport " + std::to_string(port_) +
                     "\nsave \"\"\nappendonly no\ndaemonize no\nlogfile \"\"\n";
  if (major_version_of_redis() >= 7) text += "enable-debug-command yes\n";
  if (!options_.password.empty()) text += "requirepass " + options_.password + "\n";
  if (options_.tls) text += "tls-port " + std::to_string(tls_port_) + "\n";
  for (const auto& line : options_.config) text += line + "\n";
  return text;
}

void RedisServer::start() {
  write_file(dir_ / "redis.conf", config_text());
  const ProcessOptions options{.env = options_.env, .cwd = dir_.path(), .merge = true};
  process_.reset();
  std::vector<std::string> words{server_program(), dir_ / "redis.conf"};
  if (options_.sentinel) words.emplace_back("--sentinel");
  process_.emplace(words, options);
  const bool up = eventually([&] { return !process_->running() || came_up(); });
  if (!up || !process_->running()) {
    throw Error(ErrorKind::unavailable, "redis-server did not start: " + log());
  }
}

/// Any reply shows that it serves, even a refusal for lack of a password, but not "-LOADING".
bool RedisServer::came_up() {
  const Connection connection = connect_unix(socket_path());
  if (connection == nullptr) return false;
  const auto reply = ask(*connection, {"PING"});
  return reply && !reply->text.starts_with("LOADING");
}

Reply RedisServer::command(const std::vector<std::string>& words) const {
  const Connection connection = connect_unix(socket_path());
  std::optional<Reply> reply;
  if (connection != nullptr) {
    if (!options_.password.empty()) ask(*connection, {"AUTH", options_.password});
    reply = ask(*connection, words);
  }
  if (!reply) throw Error(ErrorKind::unavailable, words.at(0) + ": no reply from " + url());
  return *reply;
}

void RedisServer::kill_hard() { process_->kill_hard(); }

void RedisServer::stop() { process_->stop(); }

void RedisServer::cont() { process_->signal(SIGCONT); }

void RedisServer::restart() {
  if (process_->running()) kill_hard();
  start();
}

long long count_calls(const RedisServer& server, const std::string& command) {
  const std::string stats = server.command({"INFO", "commandstats"}).text;
  const auto at = stats.find("cmdstat_" + command + ":calls=");
  return at == std::string::npos ? 0 : std::stoll(stats.substr(stats.find('=', at) + 1));
}

std::string stored_hold(const RedisServer& server, const std::string& key) {
  for (const Reply& hold : server.command({"HVALS", "dlock:{" + key + "}"}).items) {
    if (!hold.text.starts_with("t ")) return hold.text;
  }
  return "";
}

std::string run_id_of(const RedisServer& server) {
  const std::string info = server.command({"INFO", "server"}).text, field = "run_id:";
  const auto at = info.find(field);
  if (at == std::string::npos) throw Error(ErrorKind::bug, "INFO without run_id");
  const auto begin = at + field.size();
  return info.substr(begin, info.find('\r', begin) - begin);
}

void record_process_of(const RedisServer& server, milliseconds age, bool durable) {
  const Reply time = server.command({"TIME"});
  const microseconds now = std::chrono::seconds(std::stoll(time.items.at(0).text)) +
                           microseconds(std::stoll(time.items.at(1).text));
  const std::string since = std::to_string((now - age).count());
  server.command({"SET", "dlock:alive", run_id_of(server) + " " + since + (durable ? " a" : " -")});
}

}  // namespace dlock::test
