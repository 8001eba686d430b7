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
  std::vector<std::string> server_config;    ///< further lines for master and replicas
  std::vector<std::string> sentinel_config;  ///< and for the sentinels
  std::string password;                      ///< of master and replicas
};

/// A master with replicas that have its data, and sentinels who know all of them and each other.
/// They do not take a master for dead that a busy machine holds up.
class Sentinels {
 public:
  explicit Sentinels(SentinelOptions options = {});

  static constexpr const char* master_name = "locks";
  SentinelTarget target() const;
  /// `redis+sentinel://127.0.0.1:1,127.0.0.1:2/locks`
  std::string url() const;
  /// The server that the sentinels take for the master now.
  RedisServer& master();
  /// The sentinels notice that after 700 ms.
  void kill_master();
  /// The port that sentinel `i` names.
  int named_port(std::size_t i = 0) const;
  std::vector<RedisServer*> replicas();
  RedisServer& sentinel(std::size_t i) {
    return *std::next(sentinels_.begin(), static_cast<std::ptrdiff_t>(i));
  }
  /// Until all sentinels name another master than `port`, and it says that it is one.
  bool failed_over(int port);

 private:
  RedisOptions server_options() const;

  SentinelOptions options_;
  std::list<RedisServer> servers_;
  std::list<RedisServer> sentinels_;
};

}  // namespace dlock::test
