#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compat/compat_store.hpp"
#include "contract/engines.hpp"
#include "quorum/node_threads.hpp"
#include "quorum/quorum_store.hpp"
#include "support/fault_proxy.hpp"
#include "support/resp.hpp"

namespace dlock::test {

/// A client of one server that writes the layout of --compat `layout`.
inline std::unique_ptr<CompatStore> compat_store(const std::string& layout,
                                                 const Address& address) {
  return std::make_unique<CompatStore>(
      parse_layout(layout),
      std::make_unique<RedisClient>(endpoint_at(address), RedisStoreOptions{}));
}

/// A client of a majority of `servers` that writes the layout of redis-py.
template <std::size_t Count>
QuorumStore redlock_store(const RedisServer (&servers)[Count]) {
  const auto open = [&servers] {
    std::vector<std::unique_ptr<Member>> nodes;
    for (const RedisServer& each : servers) {
      nodes.push_back(compat_store("redis-py", each.address()));
    }
    return nodes;
  };
  return QuorumStore(std::make_unique<ThreadedNodeClients>(open));
}

/// A layout of each kind, and its key for the lock `N`.
struct WrittenLayout {
  const char* layout;
  const char* key;
  const char* type;
};
inline const std::vector<WrittenLayout> written_layouts{
    {"redis-py", "N", "string"},
    {"pottery", "redlock:N", "string"},
    {"redis-semaphore", "mutex:N", "string"},
    {"laravel:app_cache:", "app_cache:N", "string"},
    {"shedlock", "job-lock:default:N", "string"},
    {"shedlock:prod", "job-lock:prod:N", "string"},
    {"spring:registry", "registry:N", "string"},
    {"python-redis-lock", "lock:N", "string"},
    {"redisson", "N", "hash"},
    {"redisson-fenced", "N", "hash"},
    {"symfony", "N", "zset"},
};

}  // namespace dlock::test
