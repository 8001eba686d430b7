#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/endpoint.hpp"
#include "redis/redis_client.hpp"
#include "redis/redis_connection.hpp"
#include "redis/reply.hpp"

namespace dlock {

/// The answer of a Cluster node that cannot serve a key now
/// (https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/).
struct Redirection {
  enum class Kind {
    moved,  ///< the slot belongs to the node at `to` from now on
    ask,    ///< the slot is migrating to `to`: send this request there, after an ASKING
    later,  ///< the slot is between two nodes, or no node serves it now
  };
  Kind kind = Kind::later;
  NodeAddress to;  ///< the host is empty if it is that of the answering node
};

/// The redirection in an error reply; nothing if it is another error.
std::optional<Redirection> redirection_in(const Reply& reply);

/// The slot of a key's name: CRC16 (XMODEM) of the text in the first braces, modulo 16384
/// (https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#key-distribution-model).
int slot_of(std::string_view name);

/// Maps the slots of a Cluster to nodes, as far as known. A plain value.
class SlotMap {
 public:
  /// Replaces the map with the one in a reply to CLUSTER SLOTS, unless that names no slot. `asked`
  /// is the host of nodes that do not know their own. Throws Error{unavailable} if the reply is
  /// malformed.
  void learn(const Reply& reply, const NodeAddress& asked);
  /// Records that one slot has another node than the last answer said.
  void move(int slot, const NodeAddress& node);

  bool is_empty() const { return owners_.empty(); }
  std::optional<NodeAddress> owner(int slot) const;
  /// Every node that has slots.
  std::vector<NodeAddress> masters() const;
  /// How many slots have no node.
  int unserved() const;
  /// Every node that was named, replicas too.
  const std::vector<NodeAddress>& nodes() const { return nodes_; }

 private:
  /// Returns 1 + the index of `node` in nodes_, where it is added if it is new.
  std::size_t number_of(const NodeAddress& node);

  std::vector<std::size_t> owners_;  ///< number_of() the master of each slot; 0: none
  std::vector<NodeAddress> nodes_;
};

/// Sends each request to the node of a Redis Cluster that has its key's slot, through one client
/// for each node that was needed. It follows redirections, and looks for the successor of a node
/// that does not answer, until the caller's deadline. Owned and used by one thread at a time.
///
/// Each link to a node begins with CLUSTER SLOTS, in the same write as the first request. Hence a
/// request to the right node costs no more round trips than with a single server, and one to
/// another node costs one redirection.
class ClusterRouter final : public RedisTransport {
 public:
  /// `seeds`: some of the nodes; all nodes have their login and TLS.
  ClusterRouter(std::vector<Endpoint> seeds, RedisStoreOptions options);

  /// See RedisTransport; `sent_twice` is also set if another node may have executed the script
  /// before its link broke.
  ScriptReply run_script(const ScriptRun& run, const CallOptions& call_options) override;
  /// Sends the requests for keys of one node in one write. Requests that are redirected follow one
  /// by one.
  std::vector<Reply> read(const std::vector<std::string>& keys,
                          const std::vector<Request>& requests,
                          const CallOptions& call_options) override;
  std::variant<std::string, Wake::Reason> next_message(const std::string& channel, Deadline until,
                                                       int cancel_fd) override;
  /// Throws Error{unavailable} if some slots have no node.
  void visit_all(const CallOptions& call_options, const Visit& visit) override;
  bool is_cluster() const override { return true; }
  std::vector<int> connections() const override;
  bool was_reached() const override;
  std::string name() const override { return name_; }

 private:
  class RoutedCall;
  /// One try of a request at `node`, after ASKING if `asking` is set. Returns its first reply.
  using Try =
      std::function<const Reply&(RedisClient& node, const CallOptions& call_options, bool asking)>;

  std::vector<Reply> read_at(int slot, const std::vector<Request>& requests,
                             const CallOptions& call_options);
  RedisClient& node_at(const NodeAddress& address);
  /// Learns from a reply to CLUSTER SLOTS; throws Error{unavailable} if it is not from a Cluster.
  void learn_map(RedisClient& node, const Reply& reply, const NodeAddress& address);
  /// Asks nodes other than `avoided` for the slot map; throws Error if none can tell it.
  void refresh(const std::optional<NodeAddress>& avoided, const CallOptions& call_options);
  [[noreturn]] void give_up(std::size_t nodes, const Error& last) const;

  RedisStoreOptions options_;
  std::vector<NodeAddress> seeds_;
  Endpoint login_;  ///< how to log in to every node; its address is unused
  std::string name_;
  std::map<NodeAddress, std::unique_ptr<RedisClient>> nodes_;  ///< nodes are never removed
  SlotMap map_;
  RedisClient* listening_ = nullptr;  ///< the node that answered the last script with a channel
  std::size_t seed_ = 0;              ///< the seed to ask about slots without a known owner
  std::size_t refreshes_ = 0;         ///< counted, so that each begins with another node
};

}  // namespace dlock
