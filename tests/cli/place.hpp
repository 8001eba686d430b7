#pragma once

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

/// Where the locks of a test live: a directory or a Redis of its own, which dlock finds in
/// DLOCK_SERVER as most users would have it.
class Place {
 public:
  explicit Place(Engine engine);

  Engine engine() const { return engine_; }
  bool is_local() const { return engine_ == Engine::local; }
  std::string url() const;
  /// Only of Engine::redis.
  RedisServer& server() const { return *server_; }
  /// A directory for what the test writes; no lock lives in it.
  const TempDir& dir() const { return dir_; }

  Result dlock(const std::vector<std::string>& arguments, ProcessOptions options = {}) const;
  Process start(const std::vector<std::string>& arguments, ProcessOptions options = {}) const;
  /// `sh -c script`, in dir(), with dlock's path in $D.
  Result shell(const std::string& script, ProcessOptions options = {}) const;
  Process start_shell(const std::string& script, ProcessOptions options = {}) const;
  /// The same, of a script that has said "in" when this returns.
  Process begun_shell(const std::string& script) const;

  /// A `run` on `key` whose command has started and stays for a minute. `options` stand before it.
  Process hold(const std::string& key, const std::vector<std::string>& options = {}) const;
  /// The token of an `acquire` on `key` for a minute.
  std::string acquired(const std::string& key, const std::vector<std::string>& options = {}) const;
  /// What `inspect -k KEY --json` prints.
  nlohmann::ordered_json state(const std::string& key) const;
  bool is_free(const std::string& key) const { return state(key)["holders"].empty(); }
  /// How many stand in the queue, and are told when it is their turn.
  std::size_t waiters(const std::string& key) const;

 private:
  ProcessOptions with_server(ProcessOptions options) const;

  Engine engine_;
  TempDir dir_;
  TempDir locks_;
  std::unique_ptr<RedisServer> server_;
};

/// Runs `test` once with each engine.
void on_each_engine(const std::function<void(const Place&)>& test);

/// A shell command that says "in" once it runs and stays until it is ended.
std::vector<std::string> staying();

/// Whether `text` is one whole line that begins with "dlock: " and holds nothing of a terminal's.
bool is_one_message(const std::string& text);

/// The names in a JSON object, in their order.
std::vector<std::string> names(const nlohmann::ordered_json& object);

bool holds(const std::string& text, const std::string& part);

}  // namespace dlock::test
