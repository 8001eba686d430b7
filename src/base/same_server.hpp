#pragma once

#include <vector>

#include "base/endpoint.hpp"

namespace dlock {

/// Whether the names of two servers show that they are one.
bool is_same_server(const Endpoint& a, const Endpoint& b);

/// A server each: whether it may be one of the others, for all that the names show, because both
/// lead to this host, or one is under TLS. Nobody is asked: two names that DNS knows for one
/// address are not found.
std::vector<bool> possible_doubles(const std::vector<Endpoint>& servers);

}  // namespace dlock
