#include "quorum/hold_round.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "lock/lease_renewer.hpp"

namespace dlock {
namespace {

using State = NodeVote::State;

milliseconds request_time(const QuorumHold& quorum_hold) {
  return quorum_hold.claim ? request_timeout(quorum_hold.claim->ttl) : silence_of_a_dead_server;
}

/// Before any member has told its clock, this host's: they take it as within a minute of theirs.
Fence next_proposal(const Nodes& nodes) {
  const auto median = nodes.clocks().median(BootClock::now());
  return Fence{median.value_or(wall_now().time_since_epoch()).count()};
}

}  // namespace

void HoldRound::ask_for_votes(const Ask& ask, Deadline deadline) {
  // The same for all, so that they agree in one round as a rule.
  hold_.proposal = next_proposal(nodes_);
  const auto now = hold_.asked = BootClock::now();
  // Half of the time is for what is to be done with it.
  hold_.fence_by = std::min(later(now, straggler_wait), now + (deadline - now) / 2);
  for (std::size_t i = 0; i < hold_.node_votes.size(); ++i) {
    const NodeVote& node_vote = hold_.node_votes[i];
    if (!ask.wait && node_vote.state == State::held && node_vote.round == hold_.round) continue;
    this->ask(i, Vote{*hold_.claim, {ask.wait, hold_.ticket}, hold_.proposal}, deadline);
  }
}

std::optional<Grant> HoldRound::await_decision(const CallOptions& call_options) {
  std::optional<Deadline> rest;
  while (true) {
    if (auto grant = decided(call_options.deadline)) return grant;
    const auto now = BootClock::now();
    const bool clear = hold_.awaited() == 0 || count_votes(hold_, now).decided;
    if (!hold_.may_win(now) && clear) return std::nullopt;
    const bool looking_for_it = hold_.fence_may_be_found(now);
    if (!looking_for_it && others_have_said_enough(rest)) return std::nullopt;
    auto until = std::min(call_options.deadline, rest.value_or(never));
    if (looking_for_it) until = hold_.fence_by;
    if (nodes_.hear(until, call_options.cancel_fd) || BootClock::now() < call_options.deadline)
      continue;
    give_up();
    return std::nullopt;
  }
}

/// Whether the members that still owe an answer are not to be waited for: enough others have
/// answered, and these have had time since, or have let us wait before.
bool HoldRound::others_have_said_enough(std::optional<Deadline>& rest) {
  const auto said = hold_.node_votes.size() - hold_.unknown() - hold_.awaited();
  if (said < hold_.needed() || hold_.awaited_holders() > 0) {
    rest.reset();
    return false;
  }
  const auto now = BootClock::now();
  if (!rest) rest = later(now, straggler_wait);
  bool all_late = true;
  for (std::size_t i = 0; i < hold_.node_votes.size(); ++i) {
    if (!hold_.node_votes[i].awaited) continue;
    if (now >= *rest) nodes_.note_late(i);
    all_late = all_late && nodes_.is_late(i);
  }
  return all_late;
}

std::optional<Grant> HoldRound::decided(Deadline deadline) {
  const auto now = BootClock::now();
  if (hold_.confirmed() < hold_.needed()) return std::nullopt;
  if (hold_.fence_may_be_found(now)) return std::nullopt;
  if (hold_.fence.value == 0) hold_.fence = hold_.least_common_fence(now);
  if (const auto lease = hold_.lease(now)) {
    hold_.acquired = true;
    rejoin();
    return Grant{hold_.fence, *lease};
  }
  for (std::size_t i = 0; i < hold_.node_votes.size(); ++i) {
    NodeVote& node_vote = hold_.node_votes[i];
    const bool lower = node_vote.state == State::held && node_vote.fence < hold_.fence;
    if (!lower || node_vote.awaited || node_vote.raised == hold_.round) continue;
    node_vote.raised = hold_.round;
    ask(i, Renewal{claim_named(name_.first, name_.second), {.granted = hold_.fence}}, deadline);
  }
  return std::nullopt;
}

void HoldRound::ask(std::size_t node, NodeRequest request, Deadline deadline) {
  nodes_.ask(node, name_, std::move(request), deadline);
  hold_.node_votes[node].awaited = true;
}

void HoldRound::give_up() {
  for (std::size_t i = 0; i < hold_.node_votes.size(); ++i) {
    NodeVote& node_vote = hold_.node_votes[i];
    if (!std::exchange(node_vote.awaited, false)) continue;
    node_vote.trouble = Error(ErrorKind::unavailable, nodes_.name(i) + ": no answer in time");
    if (node_vote.state != State::held) node_vote.state = State::failed;
  }
}

void HoldRound::give_votes_back() {
  const auto deadline = later(BootClock::now(), request_time(hold_));
  for (std::size_t i = 0; i < hold_.node_votes.size(); ++i) {
    NodeVote& node_vote = hold_.node_votes[i];
    if (node_vote.state == State::refused && !node_vote.awaited) continue;
    nodes_.ask(i, std::nullopt,
               Release{claim_named(name_.first, name_.second), {ReleaseMode::ignore_floor}},
               deadline);
    node_vote.state = State::returned;
  }
}

/// The members without the hold take it down, past their queues; all with its fence.
void HoldRound::rejoin() {
  if (!hold_.claim) return;
  const auto deadline = later(BootClock::now(), request_time(hold_));
  for (std::size_t i = 0; i < hold_.node_votes.size(); ++i) {
    const NodeVote& node_vote = hold_.node_votes[i];
    const bool lacks_it = node_vote.state == State::refused || node_vote.state == State::gone;
    const bool differs = node_vote.state == State::held && node_vote.fence != hold_.fence;
    if ((!lacks_it && !differs) || node_vote.awaited) continue;
    ask(i, Rejoining{*hold_.claim, hold_.fence}, deadline);
  }
}

}  // namespace dlock
