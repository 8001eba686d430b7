#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "support/process.hpp"
#include "support/sockets.hpp"
#include "support/temp_dir.hpp"

namespace dlock::test {

/// A reply of a server as a plain value.
struct Reply {
  enum class Kind { nothing, text, status, error, number, array };
  Kind kind = Kind::nothing;
  std::string text;  ///< for text, status and error
  long long number = 0;
  std::vector<Reply> items;
};

struct RedisOptions {
  bool tcp = false;                            ///< also on a free port of 127.0.0.1
  bool sentinel = false;                       ///< a Sentinel instead
  std::string password{};                      ///< requirepass; `command` uses it
  std::vector<std::string> config{};           ///< further lines of redis.conf, after ours
  std::map<std::string, std::string> env{};    ///< such as ShimClock::environment()
  int port = 0;                                ///< a port of 127.0.0.1 that the caller reserves
  std::map<std::string, std::string> files{};  ///< written into its directory before the start
  bool tls = false;  ///< also on a free TLS port; `config` names the files
};

/// The major version of the server that tests start, Redis or Valkey: 7 for 7.0.15.
int major_version_of_redis();

/// A Redis or Valkey (DLOCK_TEST_REDIS_SERVER, else redis-server of PATH) for one test, on a Unix
/// socket in its own directory, without persistence, with DEBUG allowed. It is up when constructed
/// and removed when destroyed. It also dies with the thread that started it.
class RedisServer {
 public:
  explicit RedisServer(RedisOptions options = {});

  std::string url() const { return "unix://" + socket_path(); }
  std::string tcp_url() const { return "redis://127.0.0.1:" + std::to_string(port_); }
  std::string socket_path() const { return dir_ / "redis.sock"; }
  /// The address for a FaultProxy or a raw client.
  Address address() const { return {socket_path()}; }
  int port() const { return port_; }
  int tls_port() const { return tls_port_; }
  pid_t pid() const { return process_->pid(); }
  const TempDir& dir() const { return dir_; }
  /// Its log since it was started.
  std::string log() const { return process_->out(); }

  /// Sends one command on a new connection. Error if no reply comes within 20 s.
  Reply command(const std::vector<std::string>& words) const;

  void kill_hard();  ///< kill -9; gone when this returns
  void stop();       ///< SIGSTOP; stopped when this returns
  void cont();       ///< SIGCONT
  /// Kills it with -9 if it still runs, then starts a new process on the same addresses. It is
  /// empty unless `options.config` made it keep its data.
  void restart();

 private:
  void start();
  bool came_up();
  std::string config_text() const;

  RedisOptions options_;
  TempDir dir_;
  int port_ = 0;
  int tls_port_ = 0;
  /// Reserved even while it is down or another program uses them.
  std::optional<UnusedPort> kept_port_;
  std::optional<UnusedPort> kept_tls_port_;
  std::optional<Process> process_;
};

/// How often the server has carried out this command.
long long count_calls(const RedisServer& server, const std::string& command);

/// The stored text of a hold of `key`; empty without one.
std::string stored_hold(const RedisServer& server, const std::string& key = "k");

/// The run_id of `server`, as INFO reports it.
std::string run_id_of(const RedisServer& server);

/// Records on `server`, below the default prefix, that it has kept its memory for `age`, as a
/// quorum client would. It votes at once if `age` exceeds the quarantine of two minutes, else after
/// the rest of it. `durable` says that clients found it to keep its data when killed.
void record_process_of(const RedisServer& server, milliseconds age = std::chrono::hours(1),
                       bool durable = false);

}  // namespace dlock::test
