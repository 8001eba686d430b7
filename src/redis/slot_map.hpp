#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "redis/endpoint_resolver.hpp"
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

/// The end of an error message if no Cluster was named: `; a Cluster is named by redis+cluster://`.
std::string advice_on_a_cluster(const Reply& reply);

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
  void move(int slot, const NodeAddress& node) { moved_[slot] = node; }

  bool is_empty() const { return ranges_.empty() && moved_.empty(); }
  std::optional<NodeAddress> owner(int slot) const;
  /// Every node that has slots.
  std::vector<NodeAddress> masters() const;
  /// How many slots have no node.
  int unserved() const;
  /// Every node that was named, replicas too.
  const std::vector<NodeAddress>& nodes() const { return nodes_; }

 private:
  struct Range {
    int first = 0;
    int last = 0;
    NodeAddress master;
  };
  std::vector<Range> ranges_;
  std::map<int, NodeAddress> moved_;  ///< changes since the ranges were read
  std::vector<NodeAddress> nodes_;
};

}  // namespace dlock
