#pragma once

#include <string>
#include <vector>

#include "config/server_url.hpp"
#include "config/sources.hpp"

namespace dlock {

/// The server to use, its password included.
struct ChosenServer {
  Target target = LocalTarget{};
  bool configured = false;
  std::vector<std::string> warnings;
};

/// Chooses the server and its password; the order of passwords is that of resolve().
ChosenServer choose_server(const Sources& sources);

}  // namespace dlock
