#pragma once

#include <string>
#include <vector>

#include "lock/store.hpp"
#include "redis/redis_transport.hpp"

namespace dlock {

/// The answer of Store::inspect for the locks and latches below `prefix`: no script is needed for
/// it.
std::vector<KeyState> inspect_locks(const Query& query, const std::string& prefix,
                                    RedisTransport& servers, const CallOptions& call_options);

/// The holders of `key`, without a look at its queue and its latch. Errors as inspect_locks().
std::vector<Holder> look_at_holders(const LockKey& key, const std::string& prefix,
                                    RedisTransport& servers, const CallOptions& call_options);

}  // namespace dlock
