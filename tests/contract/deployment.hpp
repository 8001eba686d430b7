#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lock/store.hpp"
#include "support/redis_server.hpp"

namespace dlock::test {

/// Servers in one of the setups that users run.
class Deployment {
 public:
  virtual ~Deployment() = default;

  /// Opens another client.
  virtual StorePtr open() = 0;
  /// Whether a majority decides, so that readers and the owners of a semaphore take turns.
  virtual bool by_majority() const { return false; }
  /// See DeployedEngine.
  virtual void freeze(const LockKey& key) = 0;
  virtual void thaw() = 0;
  virtual void lose_on_one(const LockKey&) {}
  virtual std::string litter() = 0;
  virtual void await_waiters(const std::string&, std::size_t) {}
  /// Whether a dead waiter is passed over at once.
  virtual bool sees_deaths() const { return true; }
  /// Whether it can list its keys.
  virtual bool lists() const { return true; }
  /// How old its clock may be: leases in its records are longer by that.
  virtual milliseconds clock_unsure() const { return milliseconds(0); }
  /// The longest time that a lease or a min-hold of `span` lasts.
  virtual milliseconds longest(milliseconds span) const { return span; }
  /// The time that a waiter with this ttl has to confirm a hand-over.
  virtual milliseconds time_to_confirm(milliseconds ttl) const;
};

/// Redis in one of the setups that users run.
class RedisDeployment : public Deployment {
 public:
  /// All servers that may store locks.
  virtual std::vector<RedisServer*> servers() = 0;
  /// The servers without which the key cannot be acquired.
  virtual std::vector<RedisServer*> servers_of(const LockKey& key) = 0;

  void freeze(const LockKey& key) override;
  void thaw() override;
  void lose_on_one(const LockKey& key) override;
  std::string litter() override;
  /// A server learns of a client's death from the end of its connection.
  void await_waiters(const std::string& key, std::size_t count) override;

 private:
  std::vector<RedisServer*> frozen_;
};

/// The deployment that DLOCK_TEST_DEPLOYMENT names, without any keys: `tcp`, `tls`, `acl`,
/// `sentinel`, `cluster`, `quorum`, or one of database_deployment(); by default one server on a
/// Unix socket. All tests of this process share it, except `tcp` and the default.
std::shared_ptr<Deployment> new_deployment();

/// Locks in `postgres`, `pgbouncer`, `mariadb`, `etcd`, `zookeeper`, `memcached`, `kubernetes` or
/// `s3`; null for another name.
std::shared_ptr<Deployment> database_deployment(const std::string& name);

}  // namespace dlock::test
