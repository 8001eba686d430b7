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

/// The address of a server, as another server announced it.
struct NodeAddress {
  std::string host;
  int port = 0;
  auto operator<=>(const NodeAddress&) const = default;
};

/// Checks the host and port that a sentinel or a Cluster node names. The text is foreign, so only a
/// possible host name or address and a port are accepted.
std::optional<NodeAddress> announced(std::string_view host, std::string_view port);

/// Finds the address of a connection's server; called for each new link, because it may have moved.
class EndpointResolver {
 public:
  virtual ~EndpointResolver() = default;

  /// Throws Error{unavailable} or {denied} if the address cannot be found now.
  virtual Endpoint find(const CallOptions& call_options) = 0;
  /// Whether the address may change: then a connection retries until its deadline.
  virtual bool may_move() const = 0;
  /// Called when the address from find() was not usable, or find() failed.
  virtual void came_to_nothing() {}
  /// The name for messages; escaped, without credentials.
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
