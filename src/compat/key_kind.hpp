#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lock/grant.hpp"
#include "redis/redis_client.hpp"
#include "redis/redis_transport.hpp"

namespace dlock {

/// What a key of any type seems to be, if it is some library's lock.
struct ForeignLock {
  std::string kind;  ///< `lock`, `read lock`, `semaphore`...
  Holder holder;
};

/// The types of keys, as TYPE has them, in which libraries keep locks.
constexpr const char* types_of_locks[] = {"string", "hash", "zset", "list"};

/// Looks at the keys `names` of one server and `type` in one round trip; the answers are in their
/// order, and there is none for what looks like no lock. Never reads more than 200 bytes of a
/// string.
std::vector<std::optional<ForeignLock>> foreign_locks(RedisTransport& servers,
                                                      const std::string& type,
                                                      const std::vector<std::string>& names,
                                                      const CallOptions& call_options);

/// For the error about a key of another kind: `it is a hash, which looks like a lock of Redisson`.
std::string what_is(RedisTransport& servers, const std::string& name,
                    const CallOptions& call_options);

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
