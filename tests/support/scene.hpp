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

/// Locks for one test, and a working directory for dlock and its commands. Scripts append to `log`
/// there with `"$STAMP" "$LOG" EVENT KEY`; $DLOCK is the dlock under test.
class Scene {
 public:
  Scene();
  virtual ~Scene() = default;
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;

  virtual std::string url() const = 0;
  /// Further variables of dlock's environment beside the URL.
  virtual std::map<std::string, std::string> settings() const { return {}; }
  /// The stored names of keys or files, sorted, with blanks between.
  virtual std::string kept() const = 0;
  /// All that free keys may leave behind.
  virtual std::string may_stay(std::vector<std::string> keys) const = 0;
  /// How long further names may remain after all keys were released.
  virtual milliseconds time_to_forget() const { return milliseconds(0); }

  ProcessOptions options() const;
  Process start(const std::vector<std::string>& arguments) const;
  Result run(const std::vector<std::string>& arguments) const;
  /// Starts a shell with the same environment.
  Process start_shell(const std::string& script) const;

  std::string path(const std::string& name) const { return work_ / name; }
  std::string log() const { return path("log"); }
  void touch(const std::string& name) const { write_file(path(name), ""); }
  bool has(const std::string& name) const;
  /// Whether a command has written something to this file.
  bool has_text(const std::string& name) const;
  /// The number that a command writes to this file; waits for it.
  std::int64_t number_in(const std::string& name) const;

  /// One line of `inspect --json`.
  std::string inspect(const std::string& key) const;
  /// The number of waiters that are queued and listening for their turn.
  virtual std::size_t waiting(const std::string& key) const;
  bool is_held(const std::string& key) const;

  /// A `run` that holds `key` when this returns, and until the file `until` exists.
  Process hold(const std::string& key, const std::string& until,
               const std::vector<std::string>& flags = {}) const;
  /// A `run` that is number `count` of the queue when this returns. Its script sees that number as
  /// $i.
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
  /// Sets the times of all files back by `by`.
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
  /// Loads the lock script into the server, so that later each request is one reply.
  void send_the_script() const;
  /// From now on dlock uses this URL to reach the server.
  void go_through(const std::string& url) { url_ = url; }

  RedisServer server;

 private:
  std::string url_;
};

/// Whether no key is held or awaited after all were released, and only allowed names are left. If a
/// server may be slow, waits until it has forgotten the rest.
bool leaves_nothing(const Scene& scene, const std::vector<std::string>& keys);

/// How far the wall clock is ahead of BootClock. Reads both clocks again if a busy machine delayed
/// it between the two.
std::chrono::nanoseconds wall_ahead();

/// The end of the lease of `key` in the server's data, on the clock of this process.
Deadline lease_end(const RedisServer& server, const std::string& key);
/// Empty unless `key` has exactly one hold: it may have expired if the machine stalled its holder.
std::optional<Deadline> lease_end_if_held(const RedisServer& server, const std::string& key);

/// The sorted names with blanks between.
std::string sorted(std::vector<std::string> names);

/// The number given to `stamp` for each hold of a log, ordered by start.
std::vector<long> order_of(const std::string& log);

/// 1, 2, ... `count`
std::vector<long> first_numbers(long count);

std::size_t times(const std::string& text, const std::string& part);

/// dlock's output without the lines that say that a release failed and the lock expires with its
/// lease. On a busy machine a server may stall for the two seconds of a release. A local lock has
/// no lease, so its lines stay.
std::string without_late_releases(const std::string& err);

}  // namespace dlock::test
