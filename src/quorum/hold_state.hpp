#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "quorum/node_threads.hpp"

namespace dlock {

/// How much longer to wait for the other nodes, if they matter, once enough have answered.
constexpr milliseconds straggler_wait{100};

/// A request to one node, and the time until which it may answer.
struct NodeCall {
  std::size_t node = 0;
  NodeRequest request;
  Deadline deadline{};
};

/// The answer of one node about one token.
struct NodeVote {
  enum class State {
    open,       ///< no answer yet, or not asked
    refused,    ///< the claim is in the queue there, if it waits
    announced,  ///< handed over by a message, not confirmed
    held,       ///< confirmed by an answer
    gone,       ///< a renewal found no hold
    released,   ///< by this client, which does not acquire the token here again
    failed,
  };
  State state = State::open;
  bool awaited = false;      ///< the node owes an answer
  std::uint64_t round = 0;   ///< of the last answer that confirmed the hold
  std::uint64_t raised = 0;  ///< the last round in which the node was asked to raise its fence
  Fence fence;               ///< stored with the hold; 0: unknown
  Lease lease;               ///< valid while the node has the hold
  Refusal refusal;
  std::optional<Error> trouble;
  milliseconds quarantined_for{0};

  bool votes() const { return quarantined_for == milliseconds(0); }
  /// Whether the node has said nothing useful so far.
  bool is_silent() const { return state == State::open || state == State::failed; }
  /// Whether its hold counts at `now`.
  bool holds(Deadline now) const {
    return state == State::held && votes() && now < lease.valid_until;
  }
};

/// All that is known about one token, over all nodes: replies come in, and the next requests and
/// the decision come out. It sends nothing and reads no clock.
class QuorumHold {
 public:
  /// A claim that is not complete has only key and token: another process acquired the hold.
  QuorumHold(std::size_t nodes, Claim claim, bool is_complete = true);

  std::vector<NodeVote> node_votes;
  Claim claim;
  bool is_complete;              ///< `claim` is the whole claim, not only its key and token
  std::optional<Ticket> ticket;  ///< the same at all nodes, once their clocks are known
  Deadline asked_first{};        ///< when the claim was first sent: its ticket is from this time
  /// The time since which others have enough votes while this claim has some.
  std::optional<Deadline> outvoted_since;
  Fence proposal;           ///< of the last request for votes
  Deadline asked{};         ///< when that was sent
  Deadline fence_by{};      ///< until when to wait for the fence of an outer hold
  Fence fence;              ///< the decided fence; 0: none yet
  bool queued = false;      ///< the claim has asked to wait
  bool acquired = false;    ///< enough nodes stored the fence in time, or another store acquired it
  std::uint64_t round = 1;  ///< counts the rounds of requests to all nodes
  std::optional<QuorumMargin> margin;
  std::optional<Who> evicted_by;  ///< as some node reported it
  std::optional<Who> stop_asked_by;
  std::optional<Predecessor> predecessor;  ///< not told with a grant yet
  std::optional<Wake> change;              ///< reported by a node, not returned by sleep() yet

  /// Notes a node's reply about this token.
  void on_reply(const NodeReply& reply);
  /// Notes a message that came unasked, or that the node's messages have ended with an error.
  void on_notification(const NodeReply& reply);

  /// Requests for lacking votes (if `ask` waits, for all), with the same proposal and ticket.
  std::vector<NodeCall> vote_requests(const Ask& ask, Fence proposed, Deadline now,
                                      Deadline deadline);
  /// Begins a round of renewals.
  std::vector<NodeCall> renewal_requests(RenewalOptions terms, Deadline now, Deadline deadline);
  /// Releases the hold on each node that may have it; a waiter keeps its positions in the queues.
  std::vector<NodeCall> release_requests(Deadline now);

  struct Decision {
    std::optional<Grant> grant;
    std::vector<NodeCall> requests;
  };
  /// Returns the grant once enough nodes store one fence, and requests by which the nodes without
  /// the hold record it, ahead of their queues. Before, the requests raise the smaller fences.
  Decision decide(Deadline now, Deadline deadline);

  std::size_t needed() const { return needed_; }
  /// The number of votes in this state.
  std::size_t count(NodeVote::State state) const {
    return count_if([&](const NodeVote& vote) { return vote.state == state; });
  }
  /// The number of nodes that have said nothing useful, and owe no answer.
  std::size_t unknown() const {
    return count_if([](const NodeVote& vote) { return vote.is_silent() && !vote.awaited; });
  }
  /// The number of nodes that owe an answer.
  std::size_t awaited() const {
    return count_if([](const NodeVote& vote) { return vote.awaited; });
  }
  /// The number of nodes whose hold counts at `now`.
  std::size_t holding(Deadline now) const {
    return count_if([&](const NodeVote& vote) { return vote.holds(now); });
  }
  /// The number of nodes that have confirmed the hold in this round.
  std::size_t confirmed() const {
    return count_if([&](const NodeVote& vote) { return is_confirmed(vote); });
  }
  bool is_confirmed(const NodeVote& vote) const {
    return vote.state == NodeVote::State::held && vote.votes() && vote.round == round;
  }
  /// Whether so many nodes have answered that the outstanding answers do not matter.
  bool is_answered() const;
  /// Whether enough nodes have the hold, or may still confirm that they do.
  bool may_win(Deadline now) const;
  /// The smallest fence that enough nodes have or can reach by raising theirs. A node with an
  /// absurd fence thus costs only its own vote.
  Fence least_common_fence(Deadline now) const;
  /// Whether the outstanding answers may reveal the fence. That is the fence of an outer hold that
  /// was re-entered, or, if the known fences are far apart, one that several nodes share.
  bool fence_may_be_found(Deadline now) const;
  /// The lease that enough holding nodes grant together. Until the hold is acquired, only nodes
  /// that store the decided fence count.
  std::optional<Lease> lease(Deadline now) const;
  milliseconds request_time() const;

 private:
  template <typename Condition>
  std::size_t count_if(const Condition& condition) const {
    return static_cast<std::size_t>(std::count_if(node_votes.begin(), node_votes.end(), condition));
  }

  std::size_t needed_;
};

/// The holders that nodes have named, as each of those nodes sees them: one list for each owner.
std::vector<std::vector<Holder>> holders_by_owner(
    const std::vector<std::vector<Holder>>& node_lists);

/// Merges the answers of nodes to one query. Leaves out holders that lack some of their votes,
/// unless those of the `servers` that did not answer can supply the rest.
std::vector<KeyState> merged_states(const Query& query,
                                    const std::vector<std::vector<KeyState>>& node_lists,
                                    std::size_t servers);

/// The distribution of the votes on a key that was not acquired.
struct VoteCount {
  std::size_t mine = 0;
  /// Others have, or may have, as many votes as they need and leave no room, or they wait before
  /// this claim.
  bool decided = false;
  /// The vote is undecided, and this claim should keep its votes: it has the most, or among equals
  /// the smallest owner, and nobody is before it in the queues of the nodes that it lacks. The
  /// others release theirs.
  bool leading = false;
};

VoteCount count_votes(const QuorumHold& hold, Deadline now);

/// Merges all refusals into one, which names the holders with the most votes first.
Refusal merged_refusal(const QuorumHold& hold);

}  // namespace dlock
