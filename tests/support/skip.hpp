#pragma once

#include <doctest/doctest.h>

#include <string>

namespace dlock::test {

/// `condition`; if it holds, prints why the test is skipped.
inline bool skip_if(bool condition, const std::string& why) {
  if (condition) MESSAGE("skipped: " << why);
  return condition;
}

/// Whether the package of this server is not installed, so that its test is skipped.
template <typename Server>
bool is_missing() {
  return skip_if(!Server::is_installed(), std::string(Server::package) + " is not installed");
}

}  // namespace dlock::test
