#pragma once

#include <doctest/doctest.h>

#include "cli/command_inside.hpp"
#include "support/etcd_servers.hpp"

// Shared helpers for tests of locks in etcd.

namespace dlock::test {

/// An etcd with one member for all tests of a process, without keys.
inline EtcdServers& one_etcd() {
  static EtcdServers etcd;
  etcd.clear();
  return etcd;
}

}  // namespace dlock::test
