#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/dlock_binary.hpp"
#include "support/redis_server.hpp"
#include "support/temp_dir.hpp"

namespace dlock::test {

enum class Engine { local, redis };

/// The locks of a test: a directory or a Redis of its own, which dlock finds in DLOCK_SERVER as
/// most users configure it.
class Place {
 public:
  explicit Place(Engine engine);

  Engine engine() const { return engine_; }
  bool is_local() const { return engine_ == Engine::local; }
  std::string url() const;
  /// Only for Engine::redis.
  RedisServer& server() const { return *server_; }
  /// A directory for the files of the test, outside of the lock directory.
  const TempDir& dir() const { return dir_; }

  Result dlock(const std::vector<std::string>& arguments, ProcessOptions options = {}) const;
  Process start(const std::vector<std::string>& arguments, ProcessOptions options = {}) const;
  /// Runs `sh -c script` in dir(), with dlock's path in $D.
  Result shell(const std::string& script, ProcessOptions options = {}) const;
  Process start_shell(const std::string& script, ProcessOptions options = {}) const;
  /// The same for a script that has written "in" when this returns.
  Process begun_shell(const std::string& script) const;

  /// A `run` on `key` whose command has started and stays for a minute. `options` come before the
  /// command.
  Process hold(const std::string& key, const std::vector<std::string>& options = {}) const;
  /// The token of an `acquire` on `key` for a minute.
  std::string acquired(const std::string& key, const std::vector<std::string>& options = {}) const;
  /// The output of `inspect -k KEY --json`.
  nlohmann::ordered_json state(const std::string& key) const;
  bool is_free(const std::string& key) const { return state(key)["holders"].empty(); }
  /// The number of waiters that are queued and listening for their turn.
  std::size_t waiters(const std::string& key) const;

 private:
  ProcessOptions with_server(ProcessOptions options) const;

  Engine engine_;
  TempDir dir_;
  TempDir locks_;
  std::unique_ptr<RedisServer> server_;
};

void on_each_engine(const std::function<void(const Place&)>& test);

/// A shell command that writes "in" when it runs, and stays until it is stopped.
std::vector<std::string> staying();

/// The names in a JSON object, in order.
std::vector<std::string> names(const nlohmann::ordered_json& object);

/// The living processes that `acquire --attach` has started for process `pid`.
std::vector<pid_t> keepers_of(pid_t pid);

/// Waits until none is left.
bool keepers_leave(pid_t pid);

/// Waits until the lease of `key` on a server has been renewed twice; false on timeout.
bool is_renewed_twice(const Place& place, const std::string& key);

/// A shell that has run `first` and then `T=$(dlock acquire OPTIONS --attach $$)`, has written
/// "in", and goes on with `then`, which has $D and $T.
Process attached(const Place& place, const std::string& options,
                 const std::string& then = "exec sleep 60", const std::string& first = ":");

/// Kills the script and waits until its attach daemons have gone; false on timeout.
bool end_script(Process& script);

}  // namespace dlock::test
