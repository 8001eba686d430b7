#pragma once

#include "base/endpoint.hpp"

namespace dlock {

/// Whether the names of two servers show that they are one. What else may show it:
/// DuplicateServers.
bool is_same_server(const Endpoint& a, const Endpoint& b);

}  // namespace dlock
