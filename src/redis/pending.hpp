#pragma once

#include <map>
#include <set>
#include <utility>

#include "lock/claim.hpp"
#include "redis/connection.hpp"

namespace dlock {

/// One key and token: what a request can be under way for.
using Asked = std::pair<LockKey, Token>;

/// What is open between a client and its servers. The stores of one Cluster's nodes share it: what
/// one node was asked, another may have to answer for.
struct Pending {
  /// Where a request went out: on which connection, on its how manieth link.
  struct Sent {
    const Connection* connection = nullptr;
    int link = 0;
    bool operator==(const Sent&) const = default;
  };
  std::map<Asked, Sent> unanswered;  ///< acquires under way, and where they first went out
  std::set<Asked> handed_over;       ///< granted by a message, not confirmed yet
  std::set<Asked> known;             ///< asked for here, or found by a renewal
};

}  // namespace dlock
