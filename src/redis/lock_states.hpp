#pragma once

#include <string>
#include <vector>

#include "lock/store.hpp"
#include "redis/redis_client.hpp"

namespace dlock {

/// Lists the names of one server's keys a page at a time, so that the server is never blocked for
/// long. A name may come twice (https://redis.io/docs/latest/commands/scan/).
class Scan {
 public:
  /// `narrowed`: the arguments of SCAN after its cursor. All pages together have until the deadline
  /// of `call_options`, because a server may send pages without end; each page has at most
  /// silence_of_a_dead_server.
  Scan(RedisClient& server, Request narrowed, const CallOptions& call_options)
      : server_(server), narrowed_(std::move(narrowed)), call_options_(call_options) {}

  /// The next page, which may be empty. Throws Error, also if the reply is not one to SCAN or
  /// repeats the cursor: there would be no last page.
  std::vector<std::string> next();
  bool has_ended() const { return has_ended_; }

 private:
  RedisClient& server_;
  const Request narrowed_;
  const CallOptions call_options_;
  std::string cursor_ = "0";
  bool has_ended_ = false;
};

/// Answers Store::inspect for the locks and latches below `prefix`, without a script.
std::vector<KeyState> inspect_locks(const Query& query, const std::string& prefix,
                                    RedisTransport& servers, const CallOptions& call_options);

/// The holders of `key`, without its queue and its latch. Errors as inspect_locks().
std::vector<Holder> look_at_holders(const LockKey& key, const std::string& prefix,
                                    RedisTransport& servers, const CallOptions& call_options);

}  // namespace dlock
