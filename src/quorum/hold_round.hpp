#pragma once

#include <optional>

#include "quorum/nodes.hpp"
#include "quorum/quorum_hold.hpp"

namespace dlock {

/// What one call of a store does about one hold: it asks the nodes for what the hold lacks, and
/// hears them until enough of them have it or no longer can. The hold notes what they say; Nodes
/// brings it there.
class HoldRound {
 public:
  HoldRound(Nodes& nodes, const HoldName& name, QuorumHold& hold)
      : nodes_(nodes), name_(name), hold_(hold) {}

  void ask(std::size_t node, NodeRequest request, Deadline deadline);
  /// Asks for the votes that are still lacking, all with the same proposal and ticket.
  void ask_for_votes(const Ask& ask, Deadline deadline);
  /// Hears what the nodes say until the hold is had, or cannot be.
  std::optional<Grant> settle(const CallOptions& call_options);
  /// The grant, once enough nodes store one fence; else asks those that have a smaller one to raise
  /// theirs.
  std::optional<Grant> decided(Deadline deadline);
  /// No answers have come in time from the nodes that owe one.
  void give_up();
  /// Releases what may be held anywhere; a waiter keeps its places in the queues.
  void give_votes_back();

 private:
  bool others_have_said_enough(std::optional<Deadline>& rest);
  void rejoin();

  Nodes& nodes_;
  const HoldName& name_;
  QuorumHold& hold_;
};

}  // namespace dlock
