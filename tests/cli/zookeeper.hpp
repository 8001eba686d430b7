#pragma once

#include <doctest/doctest.h>

#include "cli/command_inside.hpp"
#include "support/zookeeper_servers.hpp"

// What tests of locks in ZooKeeper have in common.

namespace dlock::test {

/// One of a single server for all tests of a process, without nodes.
inline ZooKeeperServers& one_zookeeper() {
  static ZooKeeperServers zookeeper;
  zookeeper.clear();
  return zookeeper;
}

}  // namespace dlock::test
