#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "redis/node_address.hpp"
#include "redis/reply.hpp"

namespace dlock {

/// The answer of a Cluster node that cannot serve a key now
/// (https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/).
struct Redirection {
  enum class Kind {
    moved,    ///< the slot belongs to the node at `to`, for good
    ask,      ///< the slot is on its way to `to`: this one request goes there, behind an ASKING
    later,    ///< not now: the slot is between two nodes, or nobody serves it at this moment
    nowhere,  ///< one of the first two, to a place that cannot be
  };
  Kind kind = Kind::later;
  NodeAddress to;  ///< the host is empty where it is that of the node that answered
};

/// The redirection in an error reply; nothing where it is another error.
std::optional<Redirection> redirection_in(const Reply& reply);

/// For the error about it, where no Cluster was named: `; a Cluster is named by redis+cluster://`.
std::string advice_on_a_cluster(const Reply& reply);

/// The slot of a key's name: CRC16 (XMODEM) of what stands in the first braces, modulo 16384
/// (https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#key-distribution-model).
int slot_of(std::string_view name);

/// Which node of a Cluster has which slot, as far as it was told. A plain value.
class SlotMap {
 public:
  /// Takes the answer to CLUSTER SLOTS, in place of all that was known, unless it tells of no slot;
  /// `asked` stands for nodes that do not know their own host. Throws Error{unavailable} where the
  /// answer is none.
  void learn(const Reply& reply, const NodeAddress& asked);
  /// One slot has another node than the last answer said.
  void move(int slot, const NodeAddress& node) { moved_[slot] = node; }

  bool is_empty() const { return ranges_.empty() && moved_.empty(); }
  std::optional<NodeAddress> owner(int slot) const;
  /// Every node that has slots.
  std::vector<NodeAddress> masters() const;
  /// How many slots nobody has.
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
  std::map<int, NodeAddress> moved_;  ///< since the ranges were told
  std::vector<NodeAddress> nodes_;
};

}  // namespace dlock
