#pragma once

#include <optional>

#include "quorum/nodes.hpp"
#include "quorum/quorum_hold.hpp"

namespace dlock {

/// Acquires, renews or releases one hold during one call of a store. It asks the nodes that lack
/// the hold, and hears replies until enough nodes have it or no longer can. Nodes passes the
/// replies to the hold, which notes them.
class HoldRound {
 public:
  HoldRound(Nodes& nodes, const HoldName& name, QuorumHold& hold)
      : nodes_(nodes), name_(name), hold_(hold) {}

  void ask(std::size_t node, NodeRequest request, Deadline deadline);
  /// Asks for the votes that are still lacking, all with the same proposal and ticket.
  void ask_for_votes(const Ask& ask, Deadline deadline);
  /// Hears replies until enough nodes have the hold, or no longer can.
  std::optional<Grant> await_decision(const CallOptions& call_options);
  /// The grant, once enough nodes store one fence. Otherwise asks the nodes with a smaller fence to
  /// raise theirs.
  std::optional<Grant> decided(Deadline deadline);
  /// Marks the answers that are still owed as not received in time.
  void give_up();
  /// Releases the hold on each node that may have it; a waiter keeps its positions in the queues.
  void give_votes_back();

 private:
  bool others_have_said_enough(std::optional<Deadline>& rest);
  void rejoin();

  Nodes& nodes_;
  const HoldName& name_;
  QuorumHold& hold_;
};

}  // namespace dlock
