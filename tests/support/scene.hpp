#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "support/dlock_binary.hpp"
#include "support/eventually.hpp"
#include "support/files.hpp"
#include "support/overlap.hpp"
#include "support/process.hpp"
#include "support/redis_server.hpp"
#include "support/stretched.hpp"
#include "support/temp_dir.hpp"

namespace dlock::test {

/// Locks of a test's own, and a directory in which dlock and its commands run. There `log` is
/// written by `"$STAMP" "$LOG" EVENT KEY`, and $DLOCK is the dlock under test.
class Scene {
 public:
  Scene();
  virtual ~Scene() = default;
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;

  virtual std::string url() const = 0;
  /// What dlock finds in its environment beside the URL.
  virtual std::map<std::string, std::string> settings() const { return {}; }
  /// What is there of locks: names of keys or files, sorted, a blank between.
  virtual std::string kept() const = 0;
  /// What stays of free keys, and nothing else.
  virtual std::string may_stay(std::vector<std::string> keys) const = 0;
  /// How long more than that may be there after everything was released.
  virtual milliseconds time_to_forget() const { return milliseconds(0); }

  ProcessOptions options() const;
  Process start(const std::vector<std::string>& arguments) const;
  Result run(const std::vector<std::string>& arguments) const;
  /// A shell beside, with the same environment.
  Process start_shell(const std::string& script) const;

  std::string path(const std::string& name) const { return work_ / name; }
  std::string log() const { return path("log"); }
  void touch(const std::string& name) const { write_file(path(name), ""); }
  bool has(const std::string& name) const;
  /// Whether a command has written something there.
  bool has_text(const std::string& name) const;
  /// The number that a command writes there; waits for it.
  std::int64_t number_in(const std::string& name) const;

  /// One line of `inspect --json`.
  std::string inspect(const std::string& key) const;
  /// How many stand in the queue, and are told when it is their turn.
  virtual std::size_t waiting(const std::string& key) const;
  bool is_held(const std::string& key) const;

  /// A `run` of `key` that holds when this returns and until the file `until` is there.
  Process hold(const std::string& key, const std::string& until,
               const std::vector<std::string>& flags = {}) const;
  /// A `run` that is the `count`th in the queue when this returns. Its script sees $i, the number.
  Process queue_up(const std::string& key, std::size_t count, const std::string& script,
                   const std::vector<std::string>& flags = {}) const;

 private:
  TempDir work_;
};

class LocalScene final : public Scene {
 public:
  std::string url() const override { return "local:" + dir_.path(); }
  std::string kept() const override;
  std::string may_stay(std::vector<std::string> keys) const override;
  /// As if all files had been written so long ago.
  void make_older(std::chrono::seconds by) const;

 private:
  TempDir dir_;
};

class RedisScene final : public Scene {
 public:
  explicit RedisScene(RedisOptions options = {}) : server(std::move(options)) {}
  std::string url() const override { return url_.empty() ? server.url() : url_; }
  std::string kept() const override;
  std::string may_stay(std::vector<std::string> keys) const override;
  std::size_t waiting(const std::string& key) const override;
  /// The server has the script of locks when this returns, so that one request is one reply.
  void send_the_script() const;
  /// From here on dlock goes through something else to the server.
  void go_through(const std::string& url) { url_ = url; }

  RedisServer server;

 private:
  std::string url_;
};

/// Whether nobody has or awaits these keys after all was released, and no more than may stay of
/// them is kept; where a server may be slow, once it has forgotten the rest.
bool leaves_nothing(const Scene& scene, const std::vector<std::string>& keys);

/// By how much the wall clock is ahead of BootClock. Both are to be read at one moment, and on a
/// busy machine a lot may come between.
std::chrono::nanoseconds wall_ahead();

/// When a hold of `key` ends by what the server has stored, on the clock of this process.
Deadline lease_end(const RedisServer& server, const std::string& key);
/// Nothing where the key has not one hold, as when the machine gave its holder no time to renew it.
std::optional<Deadline> lease_end_if_held(const RedisServer& server, const std::string& key);

/// Names in their order, a blank between.
std::string sorted(std::vector<std::string> names);

/// Each tenure of a log in the order they started, as the number given to stamp.
std::vector<long> order_of(const std::string& log);

/// 1, 2, ... `count`
std::vector<long> first_numbers(long count);

std::size_t times(const std::string& text, const std::string& part);

/// What dlock wrote, without the lines that say that a lock could not be released and ends with its
/// lease. On a busy machine a server may stand still for the two seconds of a release; a lock of
/// this host has no lease, and its lines stay.
std::string without_late_releases(const std::string& err);

}  // namespace dlock::test
