#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

#include "base/wait.hpp"

namespace dlock {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
};

/// Returns every address of `host`, in the resolver's order. getaddrinfo(3) has no deadline, so it
/// runs in a separate thread unless `host` is an address. If the thread is late, resolve()
/// leaves it behind and throws Error{unavailable}, as it does for a host without an address.
std::vector<SocketAddress> resolve(const std::string& host, int port,
                                   const CallOptions& call_options);

/// Returns the addresses as digits, for a library that would wait for the resolver without a
/// deadline.
std::vector<std::string> resolve_in_digits(const std::string& host,
                                           const CallOptions& call_options);

}  // namespace dlock
