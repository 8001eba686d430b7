#pragma once

#include <map>

#include "quorum/nodes.hpp"
#include "quorum/quorum_hold.hpp"

namespace dlock {

/// Decides how long the renewal of one of several holds waits for what a far node has to say of
/// another: the renewal overtakes that reply, and with it the node would never be found to lack
/// the hold. Driven by QuorumStore, in its thread.
class RenewalTurns {
 public:
  /// Called before a renewal of `next`. All holds that are renewed one after the other share one
  /// time to wait, and the hold that was overtaken most often has the first turn. Throws
  /// Error{interrupted}.
  void await_far_nodes(Nodes& nodes, std::map<HoldName, QuorumHold>& holds, const HoldName& next,
                       const CallOptions& call_options);

 private:
  Deadline wait_until_{};  ///< of the latest time to wait
};

}  // namespace dlock
