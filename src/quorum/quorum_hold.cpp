#include "quorum/quorum_hold.hpp"

#include <algorithm>
#include <map>

namespace dlock {
namespace {

using State = NodeVote::State;

/// In microseconds: proposals of one moment differ by less, whatever the servers' clocks.
constexpr std::int64_t farthest_apart = 600'000'000;

struct Competitor {
  Holder holder;
  std::size_t votes = 0;
};

/// The competitors by owner. A kept hold has no owner, and a process may have left several. It is
/// therefore identified by its process and its position among that process's holds at each member;
/// all members name the oldest first.
std::map<std::string, Competitor> rivals_in(const QuorumHold& quorum_hold) {
  std::map<std::string, Competitor> competitors;
  for (const NodeVote& node_vote : quorum_hold.node_votes) {
    if (node_vote.state != State::refused) continue;
    std::map<std::string, int> kept_here;
    for (const Holder& holder : node_vote.refusal.held_by) {
      std::string id = holder.owner;
      if (holder.kept) {
        id = " " + holder.who.host + " " + std::to_string(holder.who.pid);
        id += " " + std::to_string(++kept_here[id]);
      }
      auto& competitor = competitors.try_emplace(id, Competitor{holder, 0}).first->second;
      ++competitor.votes;
    }
  }
  return competitors;
}

/// A refusal names only the first few holders.
bool holders_left_out(const QuorumHold& quorum_hold) {
  return std::any_of(quorum_hold.node_votes.begin(), quorum_hold.node_votes.end(),
                     [](const NodeVote& node_vote) {
                       return node_vote.state == State::refused &&
                              node_vote.refusal.holders > node_vote.refusal.held_by.size();
                     });
}

/// Whether the competitor has the votes it needs, as far as can be seen. In a race the known votes
/// are a moment old. A holder of longer standing may also have votes of members that cannot be seen
/// now.
bool is_established(const Competitor& competitor, const QuorumHold& quorum_hold) {
  constexpr milliseconds older_than_a_race{1000};
  const std::size_t needed = votes_needed(quorum_hold.node_votes.size(), competitor.holder.limit);
  const std::size_t unseen = quorum_hold.unknown() + quorum_hold.awaited();
  return competitor.votes >= needed ||
         (competitor.votes + unseen >= needed && competitor.holder.held >= older_than_a_race);
}

/// Whether exactly one of them is a reader: no member admits both.
bool apart(Limit a, Limit b) { return a.unlimited() != b.unlimited(); }

bool has_room(const Refusal& refusal, Limit limit) {
  const auto inside = static_cast<std::int64_t>(refusal.holders) + 1;
  return limit.admits(inside) &&
         std::all_of(refusal.held_by.begin(), refusal.held_by.end(), [&](const Holder& holder) {
           return holder.limit.admits(inside) && !apart(limit, holder.limit);
         });
}

/// The number of members that have room, but a queue of other waiters.
std::size_t barred_by_queues(const QuorumHold& quorum_hold) {
  return static_cast<std::size_t>(std::count_if(
      quorum_hold.node_votes.begin(), quorum_hold.node_votes.end(), [&](const NodeVote& node_vote) {
        return node_vote.state == State::refused && node_vote.refusal.waiting > 0 &&
               has_room(node_vote.refusal, quorum_hold.claim->limit);
      }));
}

}  // namespace

QuorumHold::QuorumHold(std::size_t members, std::optional<Claim> of)
    : node_votes(members),
      claim(std::move(of)),
      acquired(!claim),
      needed_(votes_needed(members, claim ? claim->limit : exclusive)) {}

void QuorumHold::take(const NodeReply& heard) {
  NodeVote& node_vote = node_votes[heard.member];
  node_vote.awaited = false;
  const auto hold = [&](const Grant& grant) {
    node_vote.state = State::held;
    node_vote.fence = grant.fence;
    node_vote.valid_until = grant.lease.valid_until;
    node_vote.length = grant.lease.length;
    node_vote.round = round;
  };
  if (const auto* error = std::get_if<Error>(&heard.response)) {
    node_vote.trouble = *error;
    if (node_vote.state != State::held) node_vote.state = State::failed;
    return;
  }
  node_vote.trouble.reset();
  node_vote.quarantined_for = heard.standing.quarantined_for;
  if (const auto* answer = std::get_if<Answer>(&heard.response)) {
    if (const auto* grant = std::get_if<Grant>(answer)) return hold(*grant);
    node_vote.state = State::refused;
    node_vote.refusal = std::get<Refusal>(*answer);
  }
  if (const auto* renewed = std::get_if<Renewed>(&heard.response)) {
    const auto& grant = renewed->grant;
    if (!grant) {
      node_vote.state = State::gone;
      if (renewed->evicted_by) evicted_by = renewed->evicted_by;
      return;
    }
    // A process that did not acquire the hold learns only from the grant how many votes it needs.
    const auto limit = claim ? std::nullopt : grant->limit;
    if (limit) needed_ = std::max(needed_, votes_needed(node_votes.size(), *limit));
    hold(*grant);
  }
}

std::size_t QuorumHold::count(State state) const {
  return static_cast<std::size_t>(
      std::count_if(node_votes.begin(), node_votes.end(),
                    [&](const NodeVote& node_vote) { return node_vote.state == state; }));
}

std::size_t QuorumHold::unknown() const {
  return static_cast<std::size_t>(std::count_if(
      node_votes.begin(), node_votes.end(),
      [](const NodeVote& node_vote) { return node_vote.is_silent() && !node_vote.awaited; }));
}

std::size_t QuorumHold::awaited() const {
  return static_cast<std::size_t>(
      std::count_if(node_votes.begin(), node_votes.end(),
                    [](const NodeVote& node_vote) { return node_vote.awaited; }));
}

std::size_t QuorumHold::awaited_holders() const {
  return static_cast<std::size_t>(
      std::count_if(node_votes.begin(), node_votes.end(), [](const NodeVote& node_vote) {
        return node_vote.awaited && node_vote.state == State::held;
      }));
}

std::vector<const NodeVote*> QuorumHold::holding(Deadline now) const {
  std::vector<const NodeVote*> holding;
  for (const NodeVote& node_vote : node_votes) {
    const bool counts =
        node_vote.state == State::held && node_vote.votes() && now < node_vote.valid_until;
    if (counts) holding.push_back(&node_vote);
  }
  return holding;
}

bool QuorumHold::may_win(Deadline now) const {
  std::size_t possible = 0;
  for (const NodeVote& node_vote : node_votes) {
    const bool held =
        node_vote.state == State::held && node_vote.votes() && now < node_vote.valid_until;
    const bool agrees =
        fence.value == 0 || acquired || node_vote.fence == fence || node_vote.awaited;
    if (held ? agrees : node_vote.awaited) ++possible;
  }
  return possible >= needed_;
}

Fence QuorumHold::least_common_fence(Deadline now) const {
  std::vector<Fence> fences;
  for (const NodeVote& node_vote : node_votes) {
    const bool held =
        node_vote.state == State::held && node_vote.votes() && now < node_vote.valid_until;
    if ((held || node_vote.state == State::told) && node_vote.fence.value != 0) {
      fences.push_back(node_vote.fence);
    }
  }
  if (fences.size() < needed_) return Fence{};
  std::sort(fences.begin(), fences.end());
  return fences[needed_ - 1];
}

std::size_t QuorumHold::confirmed() const {
  return static_cast<std::size_t>(
      std::count_if(node_votes.begin(), node_votes.end(), [this](const NodeVote& node_vote) {
        return node_vote.state == State::held && node_vote.votes() && node_vote.round == round;
      }));
}

bool QuorumHold::may_be_confirmed() const { return confirmed() + awaited() >= needed_; }

bool QuorumHold::fence_may_be_found(Deadline now) const {
  const auto held = holding(now);
  if (fence.value != 0 || awaited() == 0 || held.size() < needed_) return false;
  if (now >= fence_by) return false;
  bool entered = false;
  auto least = held.front()->fence, largest = least;
  for (const NodeVote* each : held) {
    entered = entered || each->fence < proposal;
    least = std::min(least, each->fence);
    largest = std::max(largest, each->fence);
    const auto alike = std::count_if(held.begin(), held.end(), [&](const NodeVote* other) {
      return other->fence == each->fence;
    });
    if (static_cast<std::size_t>(alike) >= needed_) return false;
  }
  return entered || largest.value - least.value > farthest_apart;
}

std::optional<Lease> QuorumHold::lease(Deadline now) const {
  std::vector<const NodeVote*> counted = holding(now);
  if (!acquired) {
    std::erase_if(counted, [&](const NodeVote* node_vote) { return node_vote->fence != fence; });
  }
  if (counted.size() < needed_) return std::nullopt;
  std::sort(counted.begin(), counted.end(),
            [](const NodeVote* a, const NodeVote* b) { return a->valid_until > b->valid_until; });
  const NodeVote& last = *counted[needed_ - 1];
  return Lease{last.length, last.valid_until};
}

VoteCount count_votes(const QuorumHold& quorum_hold, Deadline now) {
  VoteCount count_votes;
  count_votes.mine = quorum_hold.holding(now).size();
  const auto members = quorum_hold.node_votes.size();
  const auto unknown = quorum_hold.unknown();
  const std::string own = quorum_hold.claim ? quorum_hold.claim->owner.text : "";
  std::size_t established = 0;
  std::size_t room = quorum_hold.claim->limit.unlimited()
                         ? static_cast<std::size_t>(largest_limit)
                         : static_cast<std::size_t>(quorum_hold.claim->limit.owners);
  // Members that have others first in their queue will admit those next.
  const auto next_there = std::count_if(
      quorum_hold.node_votes.begin(), quorum_hold.node_votes.end(), [](const NodeVote& node_vote) {
        return node_vote.state == State::refused && node_vote.refusal.ahead == 0;
      });
  count_votes.leading =
      count_votes.mine > 0 &&
      count_votes.mine + unknown + static_cast<std::size_t>(next_there) >= quorum_hold.needed();
  for (const auto& [id, competitor] : rivals_in(quorum_hold)) {
    if (is_established(competitor, quorum_hold)) {
      ++established;
      if (!competitor.holder.limit.unlimited()) {
        room = std::min(room, static_cast<std::size_t>(competitor.holder.limit.owners));
      }
      if (apart(quorum_hold.claim->limit, competitor.holder.limit)) room = 0;
      continue;
    }
    // Members that have admitted us do not say which others they have admitted.
    const bool alone = quorum_hold.claim->limit == exclusive ||
                       competitor.holder.limit == exclusive ||
                       apart(quorum_hold.claim->limit, competitor.holder.limit);
    const std::size_t votes = competitor.votes + (alone ? 0 : count_votes.mine);
    if (votes > count_votes.mine || (votes == count_votes.mine && id < own))
      count_votes.leading = false;
  }
  const auto spare = members - quorum_hold.needed();
  count_votes.decided =
      established >= room || holders_left_out(quorum_hold) || barred_by_queues(quorum_hold) > spare;
  return count_votes;
}

Refusal merged_refusal(const QuorumHold& quorum_hold) {
  Refusal merged;
  std::vector<milliseconds> ends;
  std::vector<std::size_t> aheads;
  for (const NodeVote& node_vote : quorum_hold.node_votes) {
    if (node_vote.state != State::refused) continue;
    const Refusal& refusal = node_vote.refusal;
    if (refusal.why != Refusal::Reason::held) merged.why = refusal.why;
    merged.holders = std::max(merged.holders, refusal.holders);
    merged.waiting = std::max(merged.waiting, refusal.waiting);
    // Once enough members are free, the next waiter is admitted: the other members do not matter.
    ends.push_back(refusal.ask_again_in);
    aheads.push_back(refusal.ahead);
  }
  std::sort(ends.begin(), ends.end());
  const auto held = quorum_hold.count(State::held);
  const auto lacking = quorum_hold.needed() - std::min(held, quorum_hold.needed() - 1);
  if (!ends.empty()) {
    const auto decisive = std::min(lacking, ends.size()) - 1;
    merged.ask_again_in = ends[decisive];
    std::sort(aheads.begin(), aheads.end());
    merged.ahead = aheads[decisive];
  }
  std::vector<Competitor> competitors;
  for (const auto& [id, competitor] : rivals_in(quorum_hold)) competitors.push_back(competitor);
  std::stable_sort(competitors.begin(), competitors.end(),
                   [](const Competitor& a, const Competitor& b) { return a.votes > b.votes; });
  for (const Competitor& competitor : competitors) merged.held_by.push_back(competitor.holder);
  // Competitors with a vote or two hold nothing if another has enough.
  if (merged.held_by.size() > merged.holders)
    merged.held_by.resize(std::max<std::size_t>(1, merged.holders));
  merged.ticket = quorum_hold.ticket.value_or(Ticket{});
  for (const NodeVote& node_vote : quorum_hold.node_votes) {
    const Refusal& refusal = node_vote.refusal;
    const bool newer = node_vote.state == State::refused &&
                       refusal.why == Refusal::Reason::superseded &&
                       (merged.why != refusal.why || merged.ticket < refusal.ticket);
    if (!newer) continue;
    merged.why = refusal.why;
    merged.held_by = refusal.held_by;
    merged.ticket = refusal.ticket;
  }
  return merged;
}

}  // namespace dlock
