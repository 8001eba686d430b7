#pragma once

#include <memory>
#include <vector>

#include "lock/store.hpp"
#include "support/redis_server.hpp"

namespace dlock::test {

/// Servers as somebody runs them.
class Deployment {
 public:
  virtual ~Deployment() = default;

  /// Another client of it.
  virtual StorePtr open() = 0;
  /// Whether a majority decides, so that readers and the owners of a semaphore take turns.
  virtual bool by_majority() const { return false; }
  /// As DeployedEngine has them.
  virtual void freeze(const LockKey& key) = 0;
  virtual void thaw() = 0;
  virtual void lose_on_one(const LockKey&) {}
  virtual std::string litter() = 0;
  virtual void await_waiters(const std::string&, std::size_t) {}
  /// Whether a waiter that has died is passed over at once.
  virtual bool sees_deaths() const { return true; }
  /// Whether it always shows who held a free key last.
  virtual bool remembers_last_holder() const { return true; }
  /// How long a lease or a min-hold that was asked for `span` counts at most.
  virtual milliseconds longest(milliseconds span) const { return span; }
  /// How long a waiter that was handed a lock with this ttl has to confirm that.
  virtual milliseconds time_to_confirm(milliseconds ttl) const;
};

/// Redis as somebody runs it.
class RedisDeployment : public Deployment {
 public:
  /// Where locks may live.
  virtual std::vector<RedisServer*> servers() = 0;
  /// Those without which a key cannot be had.
  virtual std::vector<RedisServer*> servers_of(const LockKey& key) = 0;

  void freeze(const LockKey& key) override;
  void thaw() override;
  void lose_on_one(const LockKey& key) override;
  std::string litter() override;
  /// A server learns from its end of the connection that a client has died.
  void await_waiters(const std::string& key, std::size_t count) override;

 private:
  std::vector<RedisServer*> frozen_;
};

/// The one that DLOCK_TEST_DEPLOYMENT names, without any keys: `tcp`, `tls`, `acl`,
/// `sentinel`, `cluster`, `quorum`, or one of database_deployment(); by default one server on a
/// Unix socket. But for `tcp` and the default all tests of this process
/// share it.
std::shared_ptr<Deployment> new_deployment();

}  // namespace dlock::test
