#pragma once

#include <string>
#include <vector>

#include "cli/place.hpp"

namespace dlock::test {

using Words = std::vector<std::string>;

/// What `dlock doctor` said.
struct Report {
  Result result;
  /// The line of this check that holds `part`, level in front; empty if there is none.
  std::string line(const std::string& check, const std::string& part = "") const;
  /// Whether this check is at this level for this reason; a failure shows all.
  bool says(const std::string& check, const std::string& level, const std::string& part) const;
};

Report doctor(const std::string& url, const Words& flags = {}, const std::string& password = "");

RedisOptions configured(std::vector<std::string> config);
/// A server that a crash does not harm.
RedisOptions keeping_all();

/// Makes the user of a line of `doctor --acl` on the server, as redis-cli would.
void obey(const RedisServer& server, const std::string& line);

}  // namespace dlock::test
