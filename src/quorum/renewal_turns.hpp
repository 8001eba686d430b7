#pragma once

#include <map>

#include "quorum/nodes.hpp"
#include "quorum/quorum_hold.hpp"

namespace dlock {

/// Decides how long the renewal of one of several holds waits for a far node's reply about another
/// hold. The renewal would overtake that reply, and nobody would ever see that the node lacks the
/// hold. Called by QuorumStore, in its thread.
class RenewalTurns {
 public:
  /// Called before a renewal of `next`. All holds that are renewed one after the other share one
  /// waiting time, and the hold that was overtaken most often has the first turn. Throws
  /// Error{interrupted}.
  void await_far_nodes(Nodes& nodes, std::map<HoldName, QuorumHold>& holds, const HoldName& next,
                       const CallOptions& call_options);

 private:
  Deadline wait_until_{};  ///< of the latest waiting time
};

}  // namespace dlock
