#pragma once

#include <doctest/doctest.h>

#include "cli/command_inside.hpp"
#include "support/etcd_servers.hpp"

// What tests of locks in etcd have in common.

namespace dlock::test {

inline bool no_etcd() {
  if (EtcdServers::is_installed()) return false;
  MESSAGE("skipped: etcd-server is not installed");
  return true;
}

/// One of a single member for all tests of a process, without keys.
inline EtcdServers& one_etcd() {
  static EtcdServers etcd;
  etcd.clear();
  return etcd;
}

}  // namespace dlock::test
