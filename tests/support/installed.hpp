#pragma once

#include <doctest/doctest.h>

namespace dlock::test {

/// Whether the package of a kind of server is not installed here, and its test is to be skipped.
/// Says so.
template <typename Server>
bool is_missing() {
  if (Server::is_installed()) return false;
  MESSAGE("skipped: " << Server::package << " is not installed");
  return true;
}

}  // namespace dlock::test
