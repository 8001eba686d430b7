#pragma once

#include <memory>
#include <string>

#include "contract/deployment.hpp"

namespace dlock::test {

/// A database without a table of locks: PostgreSQL as `postgres`, `postgres-tcp`, `postgres-tls`,
/// or behind a PgBouncer as `pgbouncer-session`, `pgbouncer-transaction`; MariaDB as `mariadb`,
/// `mariadb-tcp`, `mariadb-tls`; etcd as `etcd`, or with three members as `etcd-cluster`; ZooKeeper
/// as `zookeeper`, or with three servers as `zookeeper-ensemble`. Null for any other name. Error if
/// the server is not installed. All tests of a process share one.
std::shared_ptr<Deployment> database_deployment(const std::string& name);

}  // namespace dlock::test
