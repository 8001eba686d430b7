#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

#include "base/wait.hpp"

namespace dlock {

/// An address to connect to.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
};

/// Every address `host` resolves to, in the resolver's order. getaddrinfo(3) knows no deadline, so
/// unless the host is a plain address it runs in a thread of its own, which is left behind if it
/// does not answer in time. Throws Error{unavailable}.
std::vector<SocketAddress> resolve(const std::string& host, int port,
                                   const CallOptions& call_options);

/// The same as texts in digits, for a library that would wait for the resolver however long it
/// takes.
std::vector<std::string> resolve_in_digits(const std::string& host,
                                           const CallOptions& call_options);

}  // namespace dlock
