#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/endpoint.hpp"
#include "redis/node_address.hpp"
#include "redis/redirection.hpp"
#include "redis/redis_client.hpp"
#include "redis/slot_map.hpp"

namespace dlock {

/// The way of every request to the node of a Redis Cluster that has its key's slot: one client for
/// each node that was needed. Redirections are followed, and a node that does not answer is looked
/// for anew, for as long as the caller's deadline allows. Owned and used by one thread at a time.
///
/// Where a slot is, is asked for in the same write as the first request to a node: so a node that
/// has the slot costs no round trip more than a server alone, and another one a redirection.
class ClusterRouter {
 public:
  using OpenNode = std::function<std::unique_ptr<RedisClient>(const Endpoint& node)>;
  using Visit = std::function<void(RedisClient& node, const CallOptions& call_options)>;

  /// `seeds`: some nodes, whose login and TLS are those of all.
  ClusterRouter(std::vector<Endpoint> seeds, OpenNode open);

  /// Runs `visit` at the node of `slot`, and again for as long as there is reason to. Returns
  /// whether one that broke off may have done it before the last.
  bool at_slot(int slot, const CallOptions& call_options, const Visit& visit);
  /// Plain requests about keys of one slot.
  std::vector<Reply> read_at(int slot, const std::vector<Request>& requests,
                             const CallOptions& call_options);
  /// Runs `visit` at every master; throws Error{unavailable} where some slots have none.
  void at_each_master(const CallOptions& call_options, const Visit& visit);
  bool was_reached() const;
  const SlotMap& map() const { return map_; }
  const std::string& name() const { return name_; }

 private:
  class RoutedCall;

  RedisClient& node_at(const NodeAddress& place);
  /// The answer to CLUSTER SLOTS; throws Error{unavailable} where it comes from no Cluster.
  void take_map(RedisClient& node, const Reply& reply, const NodeAddress& place);
  /// Asks nodes where the slots are, others than `avoided`; throws Error if none can say.
  void refresh(const std::optional<NodeAddress>& avoided, const CallOptions& call_options);
  [[noreturn]] void give_up(std::size_t nodes, const Error& last) const;

  std::vector<NodeAddress> seeds_;
  Endpoint login_;  ///< of every node, without its place
  OpenNode open_;
  std::string name_;
  std::map<NodeAddress, std::unique_ptr<RedisClient>> nodes_;  ///< none ever goes
  SlotMap map_;
  std::size_t seed_ = 0;       ///< the one to ask for slots nobody is known to have
  std::size_t refreshes_ = 0;  ///< each begins with another node
};

}  // namespace dlock
