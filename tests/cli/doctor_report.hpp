#pragma once

#include <string>
#include <vector>

#include "cli/place.hpp"

namespace dlock::test {

using Words = std::vector<std::string>;

/// The output of `dlock doctor`.
struct Report {
  Result result;
  /// The line of this check that contains `part`, starting with its level; empty if there is none.
  std::string line(const std::string& check, const std::string& part = "") const;
  /// Whether this check has this level for this reason; a failure shows the whole report.
  bool says(const std::string& check, const std::string& level, const std::string& part) const;
};

Report doctor(const std::string& url, const Words& flags = {}, const std::string& password = "");

RedisOptions configured(std::vector<std::string> config);
/// A server that loses nothing in a crash.
RedisOptions keeping_all();

/// Creates the user of a line of `doctor --acl` on the server, as redis-cli would.
void obey(const RedisServer& server, const std::string& line);

}  // namespace dlock::test
