#include "quorum/tenure.hpp"

#include <algorithm>
#include <map>

namespace dlock {
namespace {

using State = Ballot::State;

/// In microseconds: what was proposed at one moment differs by less, whatever the servers' clocks.
constexpr std::int64_t farthest_apart = 600'000'000;

struct Rival {
  Holder holder;
  std::size_t votes = 0;
};

/// By owner, and by process where a kept hold has none.
std::map<std::string, Rival> rivals_in(const Tenure& tenure) {
  std::map<std::string, Rival> rivals;
  for (const Ballot& ballot : tenure.ballots) {
    if (ballot.state != State::refused) continue;
    for (const Holder& holder : ballot.refusal.held_by) {
      const std::string id =
          holder.kept ? " " + holder.who.host + " " + std::to_string(holder.who.pid) : holder.owner;
      auto& rival = rivals.try_emplace(id, Rival{holder, 0}).first->second;
      ++rival.votes;
    }
  }
  return rivals;
}

/// A refusal names the first few holders alone.
bool holders_left_out(const Tenure& tenure) {
  return std::any_of(tenure.ballots.begin(), tenure.ballots.end(), [](const Ballot& ballot) {
    return ballot.state == State::refused && ballot.refusal.holders > ballot.refusal.held_by.size();
  });
}

/// Whether it has what it needs, as far as can be seen. In a race votes are a moment old; who is
/// longer inside may have those of members that cannot be seen now.
bool is_established(const Rival& rival, const Tenure& tenure) {
  constexpr milliseconds older_than_a_race{1000};
  const std::size_t needed = votes_needed(tenure.ballots.size(), rival.holder.limit);
  const std::size_t unseen = tenure.unknown() + tenure.awaited();
  return rival.votes >= needed ||
         (rival.votes + unseen >= needed && rival.holder.held >= older_than_a_race);
}

/// A reader, and who is none: no member lets one in beside the other.
bool apart(Limit a, Limit b) { return a.unlimited() != b.unlimited(); }

bool has_room(const Refusal& refusal, Limit limit) {
  const auto inside = static_cast<std::int64_t>(refusal.holders) + 1;
  return limit.admits(inside) &&
         std::all_of(refusal.held_by.begin(), refusal.held_by.end(), [&](const Holder& holder) {
           return holder.limit.admits(inside) && !apart(limit, holder.limit);
         });
}

/// Members with room, for which others wait.
std::size_t barred_by_queues(const Tenure& tenure) {
  return static_cast<std::size_t>(
      std::count_if(tenure.ballots.begin(), tenure.ballots.end(), [&](const Ballot& ballot) {
        return ballot.state == State::refused && ballot.refusal.waiting > 0 &&
               has_room(ballot.refusal, tenure.claim->limit);
      }));
}

}  // namespace

Tenure::Tenure(std::size_t members, std::optional<Claim> of)
    : ballots(members),
      claim(std::move(of)),
      had(!claim),
      needed_(votes_needed(members, claim ? claim->limit : exclusive)) {}

void Tenure::take(const Heard& heard) {
  Ballot& ballot = ballots[heard.member];
  ballot.awaited = false;
  const auto hold = [&](const Grant& grant) {
    ballot.state = State::held;
    ballot.fence = grant.fence;
    ballot.valid_until = grant.lease.valid_until;
    ballot.length = grant.lease.length;
    ballot.round = round;
  };
  if (const auto* error = std::get_if<Error>(&heard.response)) {
    ballot.trouble = *error;
    if (ballot.state != State::held) ballot.state = State::failed;
    return;
  }
  ballot.trouble.reset();
  ballot.no_vote_for = heard.standing.no_vote_for;
  if (const auto* answer = std::get_if<Answer>(&heard.response)) {
    if (const auto* grant = std::get_if<Grant>(answer)) return hold(*grant);
    ballot.state = State::refused;
    ballot.refusal = std::get<Refusal>(*answer);
  }
  if (const auto* grant = std::get_if<std::optional<Grant>>(&heard.response)) {
    if (!*grant) {
      ballot.state = State::gone;
      return;
    }
    // Who did not ask for it knows no other way what it takes.
    const auto limit = claim ? std::nullopt : (*grant)->limit;
    if (limit) needed_ = std::max(needed_, votes_needed(ballots.size(), *limit));
    hold(**grant);
  }
}

std::size_t Tenure::count(State state) const {
  return static_cast<std::size_t>(std::count_if(
      ballots.begin(), ballots.end(), [&](const Ballot& ballot) { return ballot.state == state; }));
}

std::size_t Tenure::unknown() const {
  return static_cast<std::size_t>(
      std::count_if(ballots.begin(), ballots.end(),
                    [](const Ballot& ballot) { return ballot.is_silent() && !ballot.awaited; }));
}

std::size_t Tenure::awaited() const {
  return static_cast<std::size_t>(std::count_if(
      ballots.begin(), ballots.end(), [](const Ballot& ballot) { return ballot.awaited; }));
}

std::size_t Tenure::awaited_holders() const {
  return static_cast<std::size_t>(std::count_if(
      ballots.begin(), ballots.end(),
      [](const Ballot& ballot) { return ballot.awaited && ballot.state == State::held; }));
}

std::vector<const Ballot*> Tenure::holding(Deadline now) const {
  std::vector<const Ballot*> holding;
  for (const Ballot& ballot : ballots) {
    const bool counts = ballot.state == State::held && ballot.votes() && now < ballot.valid_until;
    if (counts) holding.push_back(&ballot);
  }
  return holding;
}

bool Tenure::may_win(Deadline now) const {
  std::size_t possible = 0;
  for (const Ballot& ballot : ballots) {
    const bool held = ballot.state == State::held && ballot.votes() && now < ballot.valid_until;
    const bool agrees = fence.value == 0 || had || ballot.fence == fence || ballot.awaited;
    if (held ? agrees : ballot.awaited) ++possible;
  }
  return possible >= needed_;
}

Fence Tenure::least_common_fence(Deadline now) const {
  std::vector<Fence> fences;
  for (const Ballot& ballot : ballots) {
    const bool held = ballot.state == State::held && ballot.votes() && now < ballot.valid_until;
    if ((held || ballot.state == State::told) && ballot.fence.value != 0) {
      fences.push_back(ballot.fence);
    }
  }
  if (fences.size() < needed_) return Fence{};
  std::sort(fences.begin(), fences.end());
  return fences[needed_ - 1];
}

std::size_t Tenure::confirmed() const {
  return static_cast<std::size_t>(
      std::count_if(ballots.begin(), ballots.end(), [this](const Ballot& ballot) {
        return ballot.state == State::held && ballot.votes() && ballot.round == round;
      }));
}

bool Tenure::may_be_confirmed() const { return confirmed() + awaited() >= needed_; }

bool Tenure::fence_may_be_found(Deadline now) const {
  const auto held = holding(now);
  if (fence.value != 0 || awaited() == 0 || held.size() < needed_) return false;
  if (now >= fence_by) return false;
  bool entered = false;
  auto least = held.front()->fence, largest = least;
  for (const Ballot* each : held) {
    entered = entered || each->fence < proposal;
    least = std::min(least, each->fence);
    largest = std::max(largest, each->fence);
    const auto alike = std::count_if(
        held.begin(), held.end(), [&](const Ballot* other) { return other->fence == each->fence; });
    if (static_cast<std::size_t>(alike) >= needed_) return false;
  }
  return entered || largest.value - least.value > farthest_apart;
}

std::optional<Lease> Tenure::lease(Deadline now) const {
  std::vector<const Ballot*> counted = holding(now);
  if (!had) {
    std::erase_if(counted, [&](const Ballot* ballot) { return ballot->fence != fence; });
  }
  if (counted.size() < needed_) return std::nullopt;
  std::sort(counted.begin(), counted.end(),
            [](const Ballot* a, const Ballot* b) { return a->valid_until > b->valid_until; });
  const Ballot& last = *counted[needed_ - 1];
  return Lease{last.length, last.valid_until};
}

Contest contest(const Tenure& tenure, Deadline now) {
  Contest contest;
  contest.mine = tenure.holding(now).size();
  const auto members = tenure.ballots.size();
  const auto unknown = tenure.unknown();
  const std::string own = tenure.claim ? tenure.claim->owner.text : "";
  std::size_t established = 0;
  std::size_t room = tenure.claim->limit.unlimited()
                         ? static_cast<std::size_t>(largest_limit)
                         : static_cast<std::size_t>(tenure.claim->limit.owners);
  // Where others are ahead in the queue, they are let in next.
  const auto next_there =
      std::count_if(tenure.ballots.begin(), tenure.ballots.end(), [](const Ballot& ballot) {
        return ballot.state == State::refused && ballot.refusal.ahead == 0;
      });
  contest.leading =
      contest.mine > 0 &&
      contest.mine + unknown + static_cast<std::size_t>(next_there) >= tenure.needed();
  for (const auto& [id, rival] : rivals_in(tenure)) {
    if (is_established(rival, tenure)) {
      ++established;
      if (!rival.holder.limit.unlimited()) {
        room = std::min(room, static_cast<std::size_t>(rival.holder.limit.owners));
      }
      if (apart(tenure.claim->limit, rival.holder.limit)) room = 0;
      continue;
    }
    // Members that let us in do not say whom they let in beside.
    const bool alone = tenure.claim->limit == exclusive || rival.holder.limit == exclusive ||
                       apart(tenure.claim->limit, rival.holder.limit);
    const std::size_t votes = rival.votes + (alone ? 0 : contest.mine);
    if (votes > contest.mine || (votes == contest.mine && id < own)) contest.leading = false;
  }
  const auto spare = members - tenure.needed();
  contest.decided =
      established >= room || holders_left_out(tenure) || barred_by_queues(tenure) > spare;
  return contest;
}

Refusal merged_refusal(const Tenure& tenure) {
  Refusal merged;
  std::vector<milliseconds> ends;
  std::vector<std::size_t> aheads;
  for (const Ballot& ballot : tenure.ballots) {
    if (ballot.state != State::refused) continue;
    const Refusal& refusal = ballot.refusal;
    if (refusal.why != Refusal::Why::held) merged.why = refusal.why;
    merged.holders = std::max(merged.holders, refusal.holders);
    merged.waiting = std::max(merged.waiting, refusal.waiting);
    // Once enough members are free the next is let in: the others make no difference.
    ends.push_back(refusal.ask_again_in);
    aheads.push_back(refusal.ahead);
  }
  std::sort(ends.begin(), ends.end());
  const auto held = tenure.count(State::held);
  const auto lacking = tenure.needed() - std::min(held, tenure.needed() - 1);
  if (!ends.empty()) {
    const auto decisive = std::min(lacking, ends.size()) - 1;
    merged.ask_again_in = ends[decisive];
    std::sort(aheads.begin(), aheads.end());
    merged.ahead = aheads[decisive];
  }
  std::vector<Rival> rivals;
  for (const auto& [id, rival] : rivals_in(tenure)) rivals.push_back(rival);
  std::stable_sort(rivals.begin(), rivals.end(),
                   [](const Rival& a, const Rival& b) { return a.votes > b.votes; });
  for (const Rival& rival : rivals) merged.held_by.push_back(rival.holder);
  // Those with a vote or two beside one who has enough hold nothing.
  if (merged.held_by.size() > merged.holders)
    merged.held_by.resize(std::max<std::size_t>(1, merged.holders));
  merged.ticket = tenure.ticket.value_or(Ticket{});
  return merged;
}

}  // namespace dlock
