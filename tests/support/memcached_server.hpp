#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/endpoint.hpp"
#include "memcached/memcached.hpp"
#include "support/process.hpp"
#include "support/sockets.hpp"

namespace dlock::test {

/// A memcached on a port of 127.0.0.1, for one test. It answers when constructed; the destructor
/// removes it.
class MemcachedServer {
 public:
  /// Whether this machine has memcached installed.
  static constexpr const char* package = "memcached";  ///< in Debian
  static bool is_installed();

  explicit MemcachedServer(std::vector<std::string> flags = {});

  Endpoint endpoint() const;
  /// The URL for dlock.
  std::string url() const { return "memcached://" + endpoint().address(); }

  void kill_hard();
  /// Starts it again, empty.
  void start();
  void stop() const { process_->stop(); }
  void cont() const;

  /// Sends a request of one line, or with a value, and returns the answer up to a line that begins
  /// with `last`, or reports a failure.
  std::string ask(const std::string& request, const std::string& last);
  /// Removes all values.
  void clear() { ask("flush_all", "OK"); }
  /// The names in memcached of all values.
  std::vector<std::string> keys();
  /// The names of the records that the values are of.
  std::vector<std::string> records();

 private:
  std::vector<std::string> flags_;
  UnusedPort port_;
  std::optional<Process> process_;
};

}  // namespace dlock::test
