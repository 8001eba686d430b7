#pragma once

#include <sys/socket.h>

#include <functional>
#include <string>
#include <vector>

#include "base/wait.hpp"

namespace dlock {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
};

/// Called with the addresses of a host, as digits; with none if it does not resolve.
using AddressListener = std::function<void(std::vector<std::string> addresses)>;

/// Returns all addresses of `host`, in the resolver's order. getaddrinfo(3) has no deadline, so it
/// runs in a thread of its own unless the host is an address; a thread that does not answer in time
/// is left behind. Throws Error{unavailable}. `listener` may be empty.
std::vector<SocketAddress> resolve(const std::string& host, int port,
                                   const CallOptions& call_options,
                                   const AddressListener& listener);

/// Returns the addresses as digits, for a library that would wait for the resolver without a
/// deadline.
std::vector<std::string> resolve_in_digits(const std::string& host,
                                           const CallOptions& call_options);

}  // namespace dlock
