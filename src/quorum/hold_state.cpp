#include "quorum/hold_state.hpp"

#include <utility>

#include "lock/lease_renewer.hpp"

namespace dlock {
namespace {

using State = NodeVote::State;

/// In microseconds: two proposals of the same time differ by less, whatever the servers' clocks.
constexpr std::int64_t farthest_apart = 600'000'000;

}  // namespace

QuorumHold::QuorumHold(std::size_t nodes, Claim of, bool complete)
    : node_votes(nodes),
      claim(std::move(of)),
      is_complete(complete),
      acquired(!complete),
      needed_(votes_needed(nodes, claim.limit)) {}

void QuorumHold::on_reply(const NodeReply& reply) {
  NodeVote& vote = node_votes[reply.node];
  vote.awaited = false;
  const auto note_grant = [&](const Grant& grant) {
    vote.state = State::held;
    vote.fence = grant.fence;
    vote.lease = grant.lease;
    vote.round = round;
    if (grant.predecessor) predecessor = grant.predecessor;
  };
  if (const auto* error = std::get_if<Error>(&reply.response)) {
    vote.trouble = *error;
    if (vote.state != State::held) vote.state = State::failed;
    return;
  }
  vote.trouble.reset();
  vote.quarantined_for = reply.standing.quarantined_for;
  if (const auto* answer = std::get_if<Answer>(&reply.response)) {
    if (const auto* grant = std::get_if<Grant>(answer)) return note_grant(*grant);
    vote.state = State::refused;
    vote.refusal = std::get<Refusal>(*answer);
  }
  if (const auto* renewed = std::get_if<Renewed>(&reply.response)) {
    const auto& grant = renewed->grant;
    if (!grant) {
      vote.state = State::gone;
      if (renewed->evicted_by) evicted_by = renewed->evicted_by;
      return;
    }
    // A process that did not acquire the hold learns only from the grant how many votes it needs.
    const auto limit = is_complete ? std::nullopt : grant->limit;
    if (limit) needed_ = std::max(needed_, votes_needed(node_votes.size(), *limit));
    note_grant(*grant);
    if (renewed->stop_asked_by) stop_asked_by = renewed->stop_asked_by;
  }
}

void QuorumHold::on_notification(const NodeReply& reply) {
  NodeVote& vote = node_votes[reply.node];
  if (const auto* error = std::get_if<Error>(&reply.response)) {
    vote.trouble = *error;
    if (vote.state == State::refused) vote.state = State::failed;
    return;
  }
  const Wake& wake = std::get<Wake>(reply.response);
  if (wake.why == Wake::Reason::changed) change = wake;
  const bool may_be_granted = vote.state == State::refused || vote.state == State::gone;
  if (wake.why != Wake::Reason::granted || !may_be_granted) return;
  vote.state = State::announced;
  vote.fence = wake.grant ? wake.grant->fence : Fence{};
}

std::vector<NodeCall> QuorumHold::vote_requests(const Ask& ask, Fence proposed, Deadline now,
                                                Deadline deadline) {
  proposal = proposed;
  asked = now;
  // Half of the time is left for the requests that raise the fence.
  fence_by = std::min(later(now, straggler_wait), now + (deadline - now) / 2);
  std::vector<NodeCall> requests;
  for (std::size_t i = 0; i < node_votes.size(); ++i) {
    const NodeVote& vote = node_votes[i];
    if (!ask.wait && vote.state == State::held && vote.round == round) continue;
    requests.push_back({i, Vote{claim, {ask.wait, ticket}, proposal}, deadline});
  }
  return requests;
}

std::vector<NodeCall> QuorumHold::renewal_requests(RenewalOptions terms, Deadline now,
                                                   Deadline deadline) {
  ++round;
  if (fence.value == 0) fence = least_common_fence(now);
  if (fence.value != 0) terms.granted = fence;
  const Renewal renewal{claim, terms};
  std::vector<NodeCall> requests;
  for (std::size_t i = 0; i < node_votes.size(); ++i) {
    const State state = node_votes[i].state;
    // A node without the hold rejoins once the others have renewed it.
    if (state == State::released || (state == State::gone && acquired && is_complete)) continue;
    requests.push_back({i, renewal, deadline});
  }
  return requests;
}

std::vector<NodeCall> QuorumHold::release_requests(Deadline now) {
  std::vector<NodeCall> requests;
  for (std::size_t i = 0; i < node_votes.size(); ++i) {
    NodeVote& vote = node_votes[i];
    if (vote.state == State::refused && !vote.awaited) continue;
    requests.push_back({i,
                        Release{claim_named(claim.key, claim.token), {ReleaseMode::ignore_floor}},
                        later(now, request_time())});
    vote.state = State::released;
  }
  return requests;
}

QuorumHold::Decision QuorumHold::decide(Deadline now, Deadline deadline) {
  Decision decision;
  if (confirmed() < needed_ || fence_may_be_found(now)) return decision;
  if (fence.value == 0) fence = least_common_fence(now);
  if (const auto common = lease(now)) {
    acquired = true;
    decision.grant = Grant{fence, *common};
    decision.grant->predecessor = std::exchange(predecessor, std::nullopt);
  }
  for (std::size_t i = 0; i < node_votes.size(); ++i) {
    NodeVote& vote = node_votes[i];
    if (vote.awaited) continue;
    const bool held = vote.state == State::held;
    if (!decision.grant && held && vote.fence < fence && vote.raised != round) {
      vote.raised = round;
      decision.requests.push_back(
          {i, Renewal{claim_named(claim.key, claim.token), {.granted = fence}}, deadline});
    }
    const bool lacks_it = vote.state == State::refused || vote.state == State::gone;
    if (decision.grant && is_complete && (lacks_it || (held && vote.fence != fence))) {
      decision.requests.push_back({i, Rejoining{claim, fence}, later(now, request_time())});
    }
  }
  return decision;
}

milliseconds QuorumHold::request_time() const {
  return is_complete ? request_timeout(claim.ttl) : silence_of_a_dead_server;
}

bool QuorumHold::is_answered() const {
  const auto holders_awaited =
      count_if([](const NodeVote& vote) { return vote.awaited && vote.state == State::held; });
  return node_votes.size() - unknown() - awaited() >= needed_ && holders_awaited == 0;
}

bool QuorumHold::may_win(Deadline now) const {
  return count_if([&](const NodeVote& vote) {
           if (!vote.holds(now)) return vote.awaited;
           return fence.value == 0 || acquired || vote.fence == fence || vote.awaited;
         }) >= needed_;
}

Fence QuorumHold::least_common_fence(Deadline now) const {
  std::vector<Fence> fences;
  for (const NodeVote& vote : node_votes) {
    const bool counts = vote.holds(now) || vote.state == State::announced;
    if (counts && vote.fence.value != 0) fences.push_back(vote.fence);
  }
  if (fences.size() < needed_) return Fence{};
  std::sort(fences.begin(), fences.end());
  return fences[needed_ - 1];
}

bool QuorumHold::fence_may_be_found(Deadline now) const {
  if (fence.value != 0 || awaited() == 0 || now >= fence_by) return false;
  std::vector<Fence> fences;
  for (const NodeVote& vote : node_votes) {
    if (vote.holds(now)) fences.push_back(vote.fence);
  }
  if (fences.size() < needed_) return false;
  std::sort(fences.begin(), fences.end());
  // If enough nodes share a fence already, there is nothing left to find.
  for (std::size_t i = needed_ - 1; i < fences.size(); ++i) {
    if (fences[i] == fences[i - (needed_ - 1)]) return false;
  }
  const Fence least = fences.front();
  return least < proposal || fences.back().value - least.value > farthest_apart;
}

std::optional<Lease> QuorumHold::lease(Deadline now) const {
  std::vector<Lease> leases;
  for (const NodeVote& vote : node_votes) {
    const bool counts = acquired || vote.fence == fence;
    if (counts && vote.holds(now)) leases.push_back(vote.lease);
  }
  if (leases.size() < needed_) return std::nullopt;
  std::sort(leases.begin(), leases.end(),
            [](const Lease& a, const Lease& b) { return a.valid_until > b.valid_until; });
  return leases[needed_ - 1];
}

}  // namespace dlock
