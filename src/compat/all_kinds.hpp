#pragma once

#include <string>
#include <vector>

#include "compat/key_kind.hpp"
#include "redis/redis_transport.hpp"

namespace dlock {

/// A key that looks like another library's lock.
struct FoundLock {
  std::string key;  ///< its name in Redis
  ForeignLock lock;
};

/// All of them whose whole names match one of `globs`, by name; none that begins with `own_prefix`.
/// Read in portions, so that the server is never blocked for long.
std::vector<FoundLock> all_foreign_locks(RedisTransport& servers,
                                         const std::vector<std::string>& globs,
                                         const std::string& own_prefix,
                                         const CallOptions& call_options);

}  // namespace dlock
