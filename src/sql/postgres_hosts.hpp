#pragma once

#include <string>
#include <vector>

#include "base/call_options.hpp"

namespace dlock {

/// One address to try: three parameters of libpq, which override those of a URL.
struct PostgresHost {
  std::string host;
  std::string hostaddr;  ///< empty: of a socket
  std::string port;
};

/// Looks up the hosts that a URL of PostgreSQL names, or else libpq's environment, since libpq
/// would wait for the resolver however long it takes; all addresses, in the order of the hosts. Of
/// several hosts those that cannot be looked up are left out. Nothing if none is named, or libpq
/// would look none up. Throws Error{unavailable} if none is found.
std::vector<PostgresHost> look_up_hosts(const std::string& url, const CallOptions& call_options);

}  // namespace dlock
