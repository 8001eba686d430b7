#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "quorum/node_clients.hpp"

namespace dlock {

/// How much longer the others are waited for, where it matters, once enough have answered.
constexpr milliseconds straggler_wait{100};

/// How long servers may differ about a hand-over that has begun, before all are asked.
constexpr milliseconds longest_settling{100};

/// The answer of one member about one token.
struct NodeVote {
  enum class State {
    open,      ///< it has not answered yet, or was not asked
    refused,   ///< it stands in the queue there, if it was to wait
    told,      ///< handed over by a message, not confirmed
    held,      ///< by an answer
    gone,      ///< a renewal found nothing
    returned,  ///< given back while the token lives on: never asked for again under this token
    failed,
  };
  State state = State::open;
  bool awaited = false;      ///< an answer is owed
  std::uint64_t round = 0;   ///< of the last answer that it is held
  std::uint64_t raised = 0;  ///< the round in which its fence was to be raised
  Fence fence;               ///< stored with the hold; 0: not known
  Deadline valid_until{};    ///< of the lease
  milliseconds length{0};
  Refusal refusal;
  std::optional<Error> trouble;
  milliseconds quarantined_for{0};

  bool votes() const { return quarantined_for == milliseconds(0); }
  /// Whether it has said nothing of use so far.
  bool is_silent() const { return state == State::open || state == State::failed; }
};

/// All that is known of one token over the members.
class QuorumHold {
 public:
  QuorumHold(std::size_t members, std::optional<Claim> claim);

  std::vector<NodeVote> node_votes;
  std::optional<Claim> claim;    ///< where it was asked for here
  std::optional<Ticket> ticket;  ///< the same at all members, once their clocks are known
  Deadline asked_first{};        ///< when its turn is counted from
  /// Since when others have enough votes and this claim some.
  std::optional<Deadline> outvoted_since;
  Fence proposal;           ///< of the last ask
  Deadline asked{};         ///< when that was
  Deadline fence_by{};      ///< until then the fence of an outer hold is looked for
  Fence fence;              ///< decided on; 0: not yet
  bool queued = false;      ///< it has asked to wait
  bool acquired = false;    ///< enough stored the fence while their leases lasted; or by others
  std::uint64_t round = 1;  ///< how often all were asked
  std::optional<QuorumMargin> margin;
  std::optional<Who> evicted_by;  ///< as some node told it
  /// How often its renewal was overtaken at a far node, since that node's reply was awaited.
  std::size_t overtaken = 0;
  /// Whether the next request went to a node that is not late before it answered in this round.
  bool round_is_overtaken = false;

  /// Notes what a member said to this token.
  void take(const NodeReply& heard);

  std::size_t needed() const { return needed_; }
  /// Votes in this state.
  std::size_t count(NodeVote::State state) const;
  /// Members that have said nothing of use, and owe no answer.
  std::size_t unknown() const;
  /// Members that owe an answer; and those of them that hold it, as far as is known.
  std::size_t awaited() const;
  std::size_t awaited_holders() const;
  /// Members whose hold counts at `now`.
  std::vector<const NodeVote*> holding(Deadline now) const;
  /// Whether enough members hold it, or may say so yet.
  bool may_win(Deadline now) const;
  /// The largest fence of some members that are enough: of those, the smallest. One member with an
  /// absurd fence then has its own vote only.
  Fence least_common_fence(Deadline now) const;
  /// How many have said so in this round, and whether enough may.
  std::size_t confirmed() const;
  bool may_be_confirmed() const;
  /// Whether those that are still to answer may tell the fence: that of an outer hold which was
  /// entered, or one that is nobody's alone, where the others' are far apart.
  bool fence_may_be_found(Deadline now) const;
  /// The lease that enough of those which hold it grant together; until it was acquired, of those
  /// that store the fence decided on.
  std::optional<Lease> lease(Deadline now) const;

 private:
  std::size_t needed_;
};

/// How the votes on a key that was not acquired are spread.
struct VoteCount {
  std::size_t mine = 0;
  /// Others have as many votes as they need, or may have, and leave no room; or stand before.
  bool decided = false;
  /// Undecided, and this claim is the one to hold on to its votes: it has the most, of those with
  /// as many the smallest owner, and nobody is before it in the queues for those it lacks. The
  /// others give theirs back.
  bool leading = false;
};

VoteCount count_votes(const QuorumHold& quorum_hold, Deadline now);

/// Of all that refused, one refusal: the holders with the most votes first.
Refusal merged_refusal(const QuorumHold& quorum_hold);

}  // namespace dlock
