#pragma once

#include <optional>
#include <string>

#include "base/call_options.hpp"

namespace dlock {

/// Three parameters of libpq, each a list with an entry for every address to try. They override
/// those of a URL.
struct PostgresHosts {
  std::string host;
  std::string hostaddr;
  std::string port;
};

/// Looks up the hosts that a URL of PostgreSQL names, since libpq would wait for the resolver
/// however long it takes. Of several hosts those that cannot be looked up are left out. Nothing if
/// the URL names none, or libpq would look none up. Throws Error{unavailable} if none is found.
std::optional<PostgresHosts> look_up_hosts(const std::string& url, const CallOptions& call_options);

}  // namespace dlock
