#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compat/compat_store.hpp"
#include "contract/engines.hpp"
#include "support/fault_proxy.hpp"
#include "support/resp.hpp"

namespace dlock::test {

/// A client of one server that writes the layout of --compat `layout`.
inline StorePtr compat_store(const std::string& layout, const Address& address) {
  return std::make_unique<CompatStore>(
      parse_layout(layout),
      std::make_unique<RedisClient>(std::make_unique<FixedEndpoint>(endpoint_at(address)),
                                    RedisTerms{}));
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
