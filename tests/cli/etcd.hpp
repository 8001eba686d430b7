#pragma once

#include <doctest/doctest.h>

#include "cli/command_inside.hpp"
#include "support/etcd_servers.hpp"

// What tests of locks in etcd have in common.

namespace dlock::test {

/// One of a single member for all tests of a process, without keys.
inline EtcdServers& one_etcd() {
  static EtcdServers etcd;
  etcd.clear();
  return etcd;
}

}  // namespace dlock::test
