#pragma once

#include <string>
#include <vector>

#include "redis/redis_client.hpp"

namespace dlock {

/// The names of one server's keys, a page at a time, so that it is never blocked for long. A name
/// may come twice (https://redis.io/docs/latest/commands/scan/).
class Scan {
 public:
  /// `narrowed`: what SCAN is to be told besides its cursor. All pages together have until
  /// `deadline`, for a server may send pages without end.
  Scan(RedisClient& server, Request narrowed, Deadline deadline)
      : server_(server), narrowed_(std::move(narrowed)), deadline_(deadline) {}

  /// The next page, which may be empty. Throws Error, also where the reply is none to SCAN and
  /// where it leads back to where it came from: then there is no last page.
  std::vector<std::string> next(const CallOptions& call_options);
  bool has_ended() const { return has_ended_; }

 private:
  RedisClient& server_;
  const Request narrowed_;
  const Deadline deadline_;
  std::string cursor_ = "0";
  bool has_ended_ = false;
};

}  // namespace dlock
