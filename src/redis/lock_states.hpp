#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lock/store.hpp"
#include "redis/redis_client.hpp"

namespace dlock {

/// Calls `take` with the names of one server's keys, a page at a time, so that the server is never
/// blocked for long. A name may come twice (https://redis.io/docs/latest/commands/scan/).
/// `narrowed`: the arguments of SCAN after its cursor. All pages together have until the deadline
/// of `call_options`; each has at most silence_of_a_dead_server. Throws Error.
void scan(RedisClient& server, const Request& narrowed, const CallOptions& call_options,
          const std::function<void(std::vector<std::string> names)>& take);

/// Answers Store::inspect for the locks and latches below `prefix`, without a script.
std::vector<KeyState> inspect_locks(const Query& query, const std::string& prefix,
                                    RedisTransport& servers, const CallOptions& call_options);

/// The holders of `key`, without its queue and its latch. Errors as inspect_locks().
std::vector<Holder> look_at_holders(const LockKey& key, const std::string& prefix,
                                    RedisTransport& servers, const CallOptions& call_options);

}  // namespace dlock
