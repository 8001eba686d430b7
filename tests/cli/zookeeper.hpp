#pragma once

#include <doctest/doctest.h>

#include "cli/command_inside.hpp"
#include "support/zookeeper_servers.hpp"

// Shared helpers for tests of locks in ZooKeeper.

namespace dlock::test {

/// A ZooKeeper with one server for all tests of a process, without nodes.
inline ZooKeeperServers& one_zookeeper() {
  static ZooKeeperServers zookeeper;
  zookeeper.clear();
  return zookeeper;
}

}  // namespace dlock::test
