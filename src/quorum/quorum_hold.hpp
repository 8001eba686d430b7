#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "quorum/node_clients.hpp"

namespace dlock {

/// How much longer to wait for the other members, if they matter, once enough have answered.
constexpr milliseconds straggler_wait{100};

/// How long the servers may differ about a hand-over that has begun, before all are asked.
constexpr milliseconds longest_settling{100};

/// The answer of one member about one token.
struct NodeVote {
  enum class State {
    open,      ///< no answer yet, or not asked
    refused,   ///< the claim is in the queue there, if it waits
    told,      ///< handed over by a message, not confirmed
    held,      ///< confirmed by an answer
    gone,      ///< a renewal found no hold
    returned,  ///< released while the token lives on: never asked for again with this token
    failed,
  };
  State state = State::open;
  bool awaited = false;      ///< an answer is owed
  std::uint64_t round = 0;   ///< of the last answer that confirmed the hold
  std::uint64_t raised = 0;  ///< the round in which its fence was to be raised
  Fence fence;               ///< stored with the hold; 0: unknown
  Deadline valid_until{};    ///< of the lease
  milliseconds length{0};
  Refusal refusal;
  std::optional<Error> trouble;
  milliseconds quarantined_for{0};

  bool votes() const { return quarantined_for == milliseconds(0); }
  /// Whether the member has said nothing useful so far.
  bool is_silent() const { return state == State::open || state == State::failed; }
};

/// All that is known about one token, over all members.
class QuorumHold {
 public:
  QuorumHold(std::size_t members, std::optional<Claim> claim);

  std::vector<NodeVote> node_votes;
  std::optional<Claim> claim;    ///< if the hold was asked for here
  std::optional<Ticket> ticket;  ///< the same at all members, once their clocks are known
  Deadline asked_first{};        ///< the time that its ticket tells
  /// The time since which others have enough votes while this claim has some.
  std::optional<Deadline> outvoted_since;
  Fence proposal;           ///< of the last request for votes
  Deadline asked{};         ///< when that was sent
  Deadline fence_by{};      ///< the fence of an outer hold is looked for until then
  Fence fence;              ///< decided on; 0: not yet
  bool queued = false;      ///< it has asked to wait
  bool acquired = false;    ///< enough nodes stored the fence in time, or another store acquired it
  std::uint64_t round = 1;  ///< how often all were asked
  std::optional<QuorumMargin> margin;
  std::optional<Who> evicted_by;  ///< as some node reported it
  /// How often renewals of other holds overtook a far node's reply about this one, since that reply
  /// was last awaited.
  std::size_t overtaken = 0;
  /// Whether a node that is not late got its next request before it answered in this round.
  bool round_is_overtaken = false;

  /// Notes a member's reply about this token.
  void take(const NodeReply& heard);

  std::size_t needed() const { return needed_; }
  /// The number of votes in this state.
  std::size_t count(NodeVote::State state) const;
  /// The number of members that have said nothing useful, and owe no answer.
  std::size_t unknown() const;
  /// The number of members that owe an answer, and of those among them that hold it, as far as is
  /// known.
  std::size_t awaited() const;
  std::size_t awaited_holders() const;
  /// The votes of members whose hold counts at `now`.
  std::vector<const NodeVote*> holding(Deadline now) const;
  /// Whether enough members hold it, or may still say so.
  bool may_win(Deadline now) const;
  /// The fence that enough members can reach by raising theirs: the largest of their fences, for
  /// the members with the smallest ones. A member with an absurd fence then costs only its own
  /// vote.
  Fence least_common_fence(Deadline now) const;
  /// The number of members that have confirmed the hold in this round, and whether enough still
  /// may.
  std::size_t confirmed() const;
  bool may_be_confirmed() const;
  /// Whether the outstanding answers may reveal the fence. That is the fence of an outer hold that
  /// was re-entered, or, if the known fences are far apart, one that several members share.
  bool fence_may_be_found(Deadline now) const;
  /// The lease that enough holding members grant together. Until the hold is acquired, only members
  /// that store the decided fence count.
  std::optional<Lease> lease(Deadline now) const;

 private:
  std::size_t needed_;
};

/// The distribution of the votes on a key that was not acquired.
struct VoteCount {
  std::size_t mine = 0;
  /// Others have, or may have, as many votes as they need and leave no room, or they wait before
  /// this claim.
  bool decided = false;
  /// The vote is undecided, and this claim should keep its votes: it has the most, or among equals
  /// the smallest owner, and nobody is before it in the queues of the members that it lacks. The
  /// others release theirs.
  bool leading = false;
};

VoteCount count_votes(const QuorumHold& quorum_hold, Deadline now);

/// Merges all refusals into one, which names the holders with the most votes first.
Refusal merged_refusal(const QuorumHold& quorum_hold);

}  // namespace dlock
