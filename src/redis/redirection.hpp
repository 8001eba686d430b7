#pragma once

#include <optional>
#include <string>

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

}  // namespace dlock
