#pragma once

#include <memory>
#include <vector>

#include "lock/store.hpp"
#include "support/redis_server.hpp"

namespace dlock::test {

/// Redis as somebody runs it.
class Deployment {
 public:
  virtual ~Deployment() = default;

  /// Another client of it.
  virtual StorePtr open() = 0;
  /// Where locks may live.
  virtual std::vector<RedisServer*> servers() = 0;
  /// Whether a majority decides, so that readers and the owners of a semaphore take turns.
  virtual bool by_majority() const { return false; }
  /// Those without which a key cannot be had.
  virtual std::vector<RedisServer*> servers_of(const LockKey& key) = 0;
};

/// The one that DLOCK_TEST_DEPLOYMENT names, without any keys: `tcp`, `tls`, `acl`,
/// `sentinel`, `cluster`, `quorum`; by default one server on a Unix socket.
/// But for `tcp` and the default all tests of this process share it.
std::shared_ptr<Deployment> new_deployment();

}  // namespace dlock::test
