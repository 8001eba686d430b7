#pragma once

#include <list>
#include <string>
#include <vector>

#include "config/server_url.hpp"
#include "support/redis_server.hpp"

namespace dlock::test {

struct SentinelOptions {
  int replicas = 2;
  int sentinels = 3;
  std::vector<std::string> server_config{};    ///< further lines for master and replicas
  std::vector<std::string> sentinel_config{};  ///< and for the sentinels
  std::string password{};                      ///< of master and replicas
};

/// A master with up-to-date replicas, and sentinels that know all of them and each other. They do
/// not declare a master dead that is only stalled by a busy machine.
class Sentinels {
 public:
  explicit Sentinels(SentinelOptions options = {});

  static constexpr const char* master_name = "locks";
  SentinelTarget target() const;
  /// `redis+sentinel://127.0.0.1:1,127.0.0.1:2/locks`
  std::string url() const;
  /// The server that the sentinels name as master now.
  RedisServer& master();
  /// The sentinels notice that after 700 ms.
  void kill_master();
  /// The port of the master that sentinel `i` names.
  int named_port(std::size_t i = 0) const;
  std::vector<RedisServer*> replicas();
  RedisServer& sentinel(std::size_t i) {
    return *std::next(sentinels_.begin(), static_cast<std::ptrdiff_t>(i));
  }
  /// Waits until all sentinels name a master other than `port`, and it reports that role.
  bool failed_over(int port);

 private:
  RedisOptions server_options() const;

  SentinelOptions options_;
  std::list<RedisServer> servers_;
  std::list<RedisServer> sentinels_;
};

}  // namespace dlock::test
