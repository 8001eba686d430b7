#pragma once

#include <doctest/doctest.h>

namespace dlock::test {

/// Whether the package of this server is not installed, so that its test is skipped. Prints so.
template <typename Server>
bool is_missing() {
  if (Server::is_installed()) return false;
  MESSAGE("skipped: " << Server::package << " is not installed");
  return true;
}

}  // namespace dlock::test
