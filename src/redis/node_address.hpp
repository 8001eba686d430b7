#pragma once

#include <compare>
#include <optional>
#include <string>
#include <string_view>

namespace dlock {

/// Where a server says that another one is.
struct NodeAddress {
  std::string host;
  int port = 0;
  auto operator<=>(const NodeAddress&) const = default;
};

/// Host and port as a sentinel or a Cluster node names them: foreign text, so only what can be a
/// host name or an address and a port is taken.
std::optional<NodeAddress> announced(std::string_view host, std::string_view port);

}  // namespace dlock
