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

struct Reply;

/// The address of a server, as another server announced it.
struct NodeAddress {
  std::string host;
  int port = 0;
  auto operator<=>(const NodeAddress&) const = default;
};

/// The server at `address`, with the login of `like`.
Endpoint endpoint_at(const Endpoint& like, const NodeAddress& address);

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
  virtual void note_failure() {}
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

/// Finds the master that sentinels name, by Redis' client guidelines. It asks the sentinels in
/// turn, each for its share of the time; the one that answered is asked first the next time. The
/// server itself must then confirm that it is a master
/// (https://redis.io/docs/latest/develop/reference/sentinel-clients/).
class SentinelResolver final : public EndpointResolver {
 public:
  /// `master` holds its login; the resolver fills in its address.
  SentinelResolver(std::vector<Endpoint> sentinels, std::string master_name, Endpoint master);

  Endpoint find(const CallOptions& call_options) override;
  bool may_move() const override { return true; }
  /// Moves another sentinel to the front: the first one may be cut off from the others and name a
  /// former master.
  void note_failure() override;
  std::string name() const override { return name_; }

 private:
  /// Returns the master.
  Endpoint ask(const Endpoint& sentinel, const CallOptions& call_options);
  /// Adds the sentinels in a reply to SENTINEL SENTINELS, since all of the URL's may be replaced
  /// while a lock is held. They have the login of `asked`.
  void learn(const Endpoint& asked, const Reply& reply);

  std::vector<Endpoint> sentinels_;  ///< the one that answered last is first
  std::string master_name_;
  Endpoint master_;
  std::string name_;
};

}  // namespace dlock
