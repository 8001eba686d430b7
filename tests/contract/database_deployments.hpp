#pragma once

#include <memory>
#include <string>

#include "contract/deployment.hpp"

namespace dlock::test {

/// An engine without any lock: `postgres` or `mariadb` under TLS, `pgbouncer` in front of
/// PostgreSQL, or `etcd` or `zookeeper` with three servers. Null for any other name. Error if the
/// server is not installed. All tests of a process share one.
std::shared_ptr<Deployment> database_deployment(const std::string& name);

}  // namespace dlock::test
