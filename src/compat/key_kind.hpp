#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lock/grant.hpp"
#include "redis/redis_client.hpp"

namespace dlock {

/// The lock that a key seems to be.
struct ForeignLock {
  std::string kind;  ///< `lock`, `read lock`, `semaphore`...
  Holder holder;
};

/// The types of keys, in the spelling of TYPE, that libraries use for locks.
constexpr const char* types_of_locks[] = {"string", "hash", "zset", "list"};

/// Looks at the keys `names` of one server, all of type `type`, in one round trip. The results are
/// in the same order; a key that does not look like a lock gives nothing. Reads at most 200 bytes
/// of a string.
std::vector<std::optional<ForeignLock>> foreign_locks(RedisTransport& servers,
                                                      const std::string& type,
                                                      const std::vector<std::string>& names,
                                                      const CallOptions& call_options);

/// The description for an error about a key of another kind, e.g. `it is a hash, which looks like a
/// lock of Redisson`.
std::string what_is(RedisTransport& servers, const std::string& name,
                    const CallOptions& call_options);

/// A key that looks like another library's lock.
struct FoundLock {
  std::string key;  ///< its name in Redis
  ForeignLock lock;
};

/// All foreign locks whose full names match one of `globs`, sorted by name, without those that
/// begin with `own_prefix`. The keys are read in pages, so that the server is never blocked for
/// long.
std::vector<FoundLock> all_foreign_locks(RedisTransport& servers,
                                         const std::vector<std::string>& globs,
                                         const std::string& own_prefix,
                                         const CallOptions& call_options);

}  // namespace dlock
