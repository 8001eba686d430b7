#pragma once

#include <compare>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/endpoint.hpp"
#include "lock/store.hpp"

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

/// Where the server of a connection is: asked anew for each link, for it may have moved.
class EndpointResolver {
 public:
  virtual ~EndpointResolver() = default;

  /// Throws Error{unavailable} or {denied} if that cannot be known now.
  virtual Endpoint find(const CallOptions& call_options) = 0;
  /// Whether the server may be another next time: then trouble with it is worth another look for as
  /// long as there is time.
  virtual bool may_move() const = 0;
  /// Called where what find() said could not be used, or find() knew nothing.
  virtual void came_to_nothing() {}
  /// What people call it; escaped, without credentials.
  virtual std::string name() const = 0;
};

/// One server at one address.
class FixedEndpoint final : public EndpointResolver {
 public:
  explicit FixedEndpoint(Endpoint endpoint) : endpoint_(std::move(endpoint)) {}

  Endpoint find(const CallOptions&) override { return endpoint_; }
  bool may_move() const override { return false; }
  std::string name() const override { return endpoint_.name(); }

 private:
  Endpoint endpoint_;
};

}  // namespace dlock
