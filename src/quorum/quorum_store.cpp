#include "quorum/quorum_store.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "lock/lease_renewer.hpp"
#include "quorum/hold_report.hpp"
#include "quorum/merge.hpp"

namespace dlock {
namespace {

using State = NodeVote::State;

constexpr milliseconds first_pause{10};
constexpr milliseconds longest_pause{1000};
/// How often the client with the most votes asks for the rest, before all begin anew.
constexpr int tries_of_a_leader = 4;

}  // namespace

QuorumStore::QuorumStore(std::unique_ptr<NodeClients> nodes)
    : QuorumStore(std::make_unique<Nodes>(std::move(nodes))) {}

QuorumStore::QuorumStore(std::unique_ptr<Nodes> nodes)
    : QuorumFenceRegister(*nodes), nodes_(std::move(nodes)) {
  nodes_->report_to(this);
}

/// Votes that came, or may yet come, for what was not acquired.
QuorumStore::~QuorumStore() {
  try {
    for (const auto& [name, quorum_hold] : quorum_holds_) {
      if (!quorum_hold.acquired) round(name).give_votes_back();
    }
  } catch (const std::exception&) {
    // They end with their leases.
  }
}

QuorumHold& QuorumStore::quorum_hold(const HoldName& name, const std::optional<Claim>& claim) {
  auto& quorum_hold = quorum_holds_.try_emplace(name, nodes_->size(), claim).first->second;
  // Renewed or released before it was asked for here.
  if (claim && !quorum_hold.claim) quorum_hold = QuorumHold(nodes_->size(), claim);
  return quorum_hold;
}

Answer QuorumStore::acquire(const Claim& claim, const Ask& asked, const CallOptions& call_options) {
  const HoldName name{claim.key, claim.token};
  QuorumHold& quorum_hold = this->quorum_hold(name, claim);
  // The first ask fixes the place alone: queued up, it would count as one that others wait for.
  const Ask ask{asked.wait && !asked.asks_again, asked.ticket};
  if (ask.wait) waiting_ = name;
  const bool is_new = quorum_hold.asked_first == Deadline{};
  if (is_new) quorum_hold.asked_first = BootClock::now();
  if (ask.ticket && ask.ticket->value != 0) {
    quorum_hold.ticket = ask.ticket;
    // It comes back under another token, and is as old as it was.
    quorum_hold.queued = quorum_hold.queued || is_new;
  }
  bool has_ticket = take_ticket(quorum_hold);
  if (quorum_hold.count(State::returned) > 0) return split(name);
  ++quorum_hold.round;
  // One that was handed over, and ended before it was confirmed, may come again with another.
  if (!quorum_hold.acquired) quorum_hold.fence = Fence{};
  HoldRound round = this->round(name);
  round.ask_for_votes(ask, call_options.deadline);
  bool newcomer = ask.wait && claim.latest && !std::exchange(quorum_hold.queued, true);
  for (int tries = 1;; ++tries) {
    if (auto grant = round.await_decision(call_options)) {
      pauses_.erase(claim.key);
      let_out(quorum_hold);
      grant->margin = quorum_hold.margin = margin_of(quorum_hold, *nodes_);
      return std::move(*grant);
    }
    refuse_misused(quorum_hold);
    // The answers have told the clocks: now its place can be the same everywhere.
    if (!std::exchange(has_ticket, take_ticket(quorum_hold)) && has_ticket && ask.wait) {
      round.ask_for_votes(ask, call_options.deadline);
      continue;
    }
    if (std::exchange(newcomer, false) && comes_after(quorum_hold)) {
      round.ask_for_votes(ask, call_options.deadline);
      continue;
    }
    const VoteCount now = count_votes(quorum_hold, BootClock::now());
    const bool go_on = !ask.wait && !now.decided && now.leading && tries < tries_of_a_leader;
    if (!go_on) return not_had(name, ask, !asked.wait);
    // The others see the same votes, and give theirs back meanwhile.
    const auto pause = later(BootClock::now(), next_pause(claim.key));
    if (pause >= call_options.deadline) return not_had(name, ask, !asked.wait);
    while (nodes_->hear(pause, call_options.cancel_fd)) {
    }
    round.ask_for_votes(ask, call_options.deadline);
  }
}

/// Whether it has a ticket: the members' clock when it was first asked for, once that is known.
bool QuorumStore::take_ticket(QuorumHold& quorum_hold) const {
  const auto median = nodes_->clocks().median(quorum_hold.asked_first);
  if (!quorum_hold.ticket && median) quorum_hold.ticket = Ticket{median->count()};
  return quorum_hold.ticket.has_value();
}

/// The ticket of a newcomer is the time of a clock that may be behind: where an older claim with
/// `latest` has a larger one, it takes the next. True if so.
bool QuorumStore::comes_after(QuorumHold& quorum_hold) {
  const Refusal refusal = merged_refusal(quorum_hold);
  if (refusal.why != Refusal::Reason::superseded) return false;
  quorum_hold.ticket = Ticket{refusal.ticket.value + 1};
  return true;
}

void QuorumStore::on_reply(const HoldName& about, const NodeReply& reply) {
  const auto found = quorum_holds_.find(about);
  if (found != quorum_holds_.end()) found->second.take(reply);
}

void QuorumStore::on_overtaken(const HoldName& about, std::size_t node) {
  const auto found = quorum_holds_.find(about);
  if (found == quorum_holds_.end()) return;
  found->second.node_votes[node].awaited = false;
  if (!nodes_->is_late(node)) found->second.round_is_overtaken = true;
}

void QuorumStore::on_news(const NodeReply& reply) {
  const auto found = waiting_ ? quorum_holds_.find(*waiting_) : quorum_holds_.end();
  if (found == quorum_holds_.end()) return;
  NodeVote& node_vote = found->second.node_votes[reply.member];
  if (const auto* error = std::get_if<Error>(&reply.response)) {
    node_vote.trouble = *error;
    if (node_vote.state == State::refused) node_vote.state = State::failed;
    return;
  }
  const Wake& wake = std::get<Wake>(reply.response);
  if (wake.why == Wake::Reason::changed) news_ = wake;
  const bool may_be_told = node_vote.state == State::refused || node_vote.state == State::gone;
  if (wake.why != Wake::Reason::granted || !may_be_told) return;
  node_vote.state = State::told;
  node_vote.fence = wake.grant ? wake.grant->fence : Fence{};
}

/// Before an acquired lock is reported: what else has arrived tells how it stands.
void QuorumStore::let_out(const QuorumHold& quorum_hold) const {
  nodes_->hear_arrived();
  refuse_misused(quorum_hold);
}

/// A server that is named twice, or is a replica.
void QuorumStore::refuse_misused(const QuorumHold& quorum_hold) {
  for (const NodeVote& node_vote : quorum_hold.node_votes) {
    if (node_vote.trouble && node_vote.trouble->kind() == ErrorKind::usage)
      throw Error(*node_vote.trouble);
  }
}

/// Why it was not acquired, and what is to become of the votes; `for_good`: nobody asks again under
/// this token, and a vote that is still to come would stand until its lease ends.
Answer QuorumStore::not_had(const HoldName& name, const Ask& ask, bool for_good) {
  QuorumHold& quorum_hold = quorum_holds_.at(name);
  const auto now = BootClock::now();
  const auto unknown = quorum_hold.unknown();
  const auto holding = quorum_hold.holding(now).size();
  const bool too_few_said = quorum_hold.node_votes.size() - unknown < quorum_hold.needed();
  // A semaphore needs so many votes that a single refusal may decide.
  if (too_few_said && holding + unknown >= quorum_hold.needed())
    throw_no_majority_of(quorum_hold, *nodes_);
  if (holding >= quorum_hold.needed()) return split(name);
  Refusal refusal = merged_refusal(quorum_hold);
  const VoteCount count_votes = dlock::count_votes(quorum_hold, now);
  const bool may_have_some = count_votes.mine > 0 || (for_good && quorum_hold.awaited() > 0);
  if (refusal.why != Refusal::Reason::held) {
    if (may_have_some) round(name).give_votes_back();
    return refusal;
  }
  if (auto unready = too_few_votes(quorum_hold, *nodes_)) return *unready;
  if (count_votes.decided) {
    if (!may_have_some) return refusal;
    refusal.ask_again_in = std::min(refusal.ask_again_in, next_pause(name.first));
    // Where leases end, or are given back, the servers follow one another.
    if (!quorum_hold.outvoted_since) quorum_hold.outvoted_since = now;
    const bool settled = now >= later(*quorum_hold.outvoted_since, longest_settling);
    if (!ask.wait || settled) round(name).give_votes_back();
    // Those it was given back to know the token no more: with another, all may vote.
    return ask.wait && settled ? split(name) : refusal;
  }
  quorum_hold.outvoted_since.reset();
  if (!ask.wait || (count_votes.mine > 0 && !count_votes.leading)) return split(name);
  refusal.ask_again_in = std::min(refusal.ask_again_in, next_pause(name.first));
  return refusal;
}

Refusal QuorumStore::split(const HoldName& name) {
  Refusal refusal = merged_refusal(quorum_holds_.at(name));
  refusal.why = Refusal::Reason::split;
  refusal.ask_again_in = next_pause(name.first);
  return refusal;
}

milliseconds QuorumStore::next_pause(const LockKey& key) {
  return pauses_.try_emplace(key, first_pause, longest_pause).first->second.next();
}

Wake QuorumStore::sleep(const Claim& claim, Deadline until, int cancel_fd) {
  QuorumHold& quorum_hold = quorum_holds_.at({claim.key, claim.token});
  const auto with_it = [&] {
    return quorum_hold.count(State::told) + quorum_hold.count(State::held);
  };
  auto known = with_it();
  Deadline end = until;
  while (true) {
    const auto now = BootClock::now();
    if (quorum_hold.count(State::told) + quorum_hold.holding(now).size() >= quorum_hold.needed()) {
      return Wake{Wake::Reason::granted, {}};
    }
    if (quorum_hold.node_votes.size() - quorum_hold.count(State::failed) < quorum_hold.needed())
      throw_no_majority_of(quorum_hold, *nodes_);
    if (std::exchange(known, with_it()) < known) {
      const auto settling = std::min(longest_settling, request_timeout(claim.ttl));
      end = std::min(end, later(now, settling));
    }
    try {
      if (!nodes_->hear(end, cancel_fd)) return Wake{Wake::Reason::due, {}};
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::interrupted) throw;
      return Wake{Wake::Reason::interrupted, {}};
    }
    if (news_) return *std::exchange(news_, std::nullopt);
  }
}

/// Of one that was granted, whichever store it was granted to, the whole claim is known: a node
/// that lacks it can take it down.
QuorumHold& QuorumStore::hold_to_renew(const Claim& claim, std::optional<Fence> granted) {
  const HoldName name{claim.key, claim.token};
  if (!granted) return this->quorum_hold(name, std::nullopt);
  QuorumHold& quorum_hold = this->quorum_hold(name, claim);
  quorum_hold.claim->who.command_pid = claim.who.command_pid;
  if (!quorum_hold.acquired) quorum_hold.fence = *granted;
  quorum_hold.acquired = true;
  return quorum_hold;
}

Renewed QuorumStore::renew(const Claim& claim, const RenewalTerms& terms,
                           const CallOptions& call_options) {
  const HoldName name{claim.key, claim.token};
  QuorumHold& quorum_hold = hold_to_renew(claim, terms.granted);
  HoldRound round = this->round(name);
  nodes_->hear_arrived();
  turns_.await_far_nodes(*nodes_, quorum_holds_, name, call_options);
  // A far node whose answer was overtaken may have renewed the hold or not.
  const bool was_heard = quorum_hold.round > 1 && !quorum_hold.round_is_overtaken;
  if (quorum_hold.acquired && was_heard) quorum_hold.margin = margin_of(quorum_hold, *nodes_);
  quorum_hold.round_is_overtaken = false;
  ++quorum_hold.round;
  if (quorum_hold.fence.value == 0)
    quorum_hold.fence = quorum_hold.least_common_fence(BootClock::now());
  Renewal request{claim_named(claim.key, claim.token), terms};
  if (quorum_hold.claim) request.claim.who.command_pid = quorum_hold.claim->who.command_pid;
  request.terms.granted.reset();
  if (quorum_hold.fence.value != 0) request.terms.granted = quorum_hold.fence;
  for (std::size_t i = 0; i < quorum_hold.node_votes.size(); ++i) {
    const State state = quorum_hold.node_votes[i].state;
    // A node that has said that it lacks the hold re-joins once the others have renewed it.
    if (state == State::returned ||
        (state == State::gone && quorum_hold.acquired && quorum_hold.claim))
      continue;
    round.ask(i, request, call_options.deadline);
  }
  const bool is_new = !quorum_hold.acquired;
  while (true) {
    if (auto grant = round.decided(call_options.deadline)) {
      pauses_.erase(claim.key);
      if (is_new) let_out(quorum_hold);
      grant->margin = quorum_hold.margin;
      return {std::move(grant)};
    }
    const auto without = quorum_hold.count(State::gone) + quorum_hold.count(State::returned);
    const bool gone = without > quorum_hold.node_votes.size() - quorum_hold.needed();
    const bool at_odds =
        quorum_hold.confirmed() >= quorum_hold.needed() && !quorum_hold.may_win(BootClock::now());
    if (gone || at_odds) return {std::nullopt, quorum_hold.evicted_by};
    if (!quorum_hold.may_be_confirmed()) throw_no_majority_of(quorum_hold, *nodes_);
    if (nodes_->hear(call_options.deadline, call_options.cancel_fd)) continue;
    round.give_up();
    throw_no_majority_of(quorum_hold, *nodes_);
  }
}

ReleaseResult QuorumStore::release(const Claim& claim, const ReleaseOptions& how,
                                   const CallOptions& call_options) {
  const HoldName name{claim.key, claim.token};
  const auto found = quorum_holds_.find(name);
  const bool ours = found != quorum_holds_.end();
  const bool acquired = !ours || found->second.acquired;
  std::size_t yes = 0, left = 0, no = 0;
  std::optional<Who> evicted_by;
  const auto counted = [&](const Nodes::Answers& answers) {
    yes = left = no = 0;
    std::size_t owed = 0;
    for (std::size_t i = 0; i < answers.size(); ++i) {
      const auto* said = answers[i] ? std::get_if<ReleaseResult>(&answers[i]->response) : nullptr;
      // Of who never answered before nothing is expected now.
      const bool silent = ours && found->second.node_votes[i].is_silent();
      if (!answers[i] && !silent) ++owed;
      if (said == nullptr) continue;
      ++(said->outcome == Released::yes ? yes : said->outcome == Released::left_queue ? left : no);
      if (said->evicted_by) evicted_by = said->evicted_by;
    }
    return yes >= nodes_->majority() || no + left > answers.size() - nodes_->majority() ||
           owed == 0;
  };
  const auto answers = nodes_->poll(Release{claim_named(claim.key, claim.token), how}, call_options,
                                    left_until(call_options.deadline), counted);
  counted(answers);
  nodes_->tell_sent_release(answers, call_options);
  // A semaphore needs more than a majority; and of a hold of another process nobody here knows.
  const bool each_counts = !ours || found->second.needed() > nodes_->majority();
  if (each_counts) await_far_servers(call_options.deadline);
  if (acquired && yes < nodes_->majority() && yes + left + no < nodes_->majority())
    nodes_->throw_no_majority_of(answers);
  if (ours) quorum_holds_.erase(found);
  if (waiting_ == name) waiting_.reset();
  const Released without = left > 0 ? Released::left_queue : Released::not_held;
  const bool most_lack_it = no + left > answers.size() - nodes_->majority();
  if (yes > 0 && !most_lack_it) return {Released::yes};
  return {without, evicted_by};
}

void QuorumStore::await_far_servers(Deadline deadline) {
  nodes_->await_stragglers(at_most(time_for_a_far_server, {deadline, -1}));
}

std::vector<KeyState> QuorumStore::inspect(const Query& query, const CallOptions& call_options) {
  const auto answers = nodes_->poll(Inspection{query}, call_options, straggler_wait,
                                    [](const Nodes::Answers&) { return false; });
  std::vector<std::vector<KeyState>> said;
  for (const auto& heard : answers) {
    const auto* states = heard ? std::get_if<std::vector<KeyState>>(&heard->response) : nullptr;
    if (states != nullptr) said.push_back(*states);
    const auto* error = heard ? std::get_if<Error>(&heard->response) : nullptr;
    if (error != nullptr && error->kind() == ErrorKind::usage) throw Error(*error);
  }
  if (said.size() < nodes_->majority()) nodes_->throw_no_majority_of(answers);
  return merged_states(query, said, nodes_->size());
}

void QuorumStore::suspend(Suspension why) {
  if (why == Suspension::rest) return;
  // Else the process that clears up last would use what the other one has.
  std::erase_if(quorum_holds_, [this](const auto& each) {
    const auto& [name, quorum_hold] = each;
    if (!quorum_hold.acquired) round(name).give_votes_back();
    return !quorum_hold.acquired;
  });
  waiting_.reset();
  news_.reset();
  nodes_->begin_anew();
  for (auto& [name, quorum_hold] : quorum_holds_) {
    for (NodeVote& node_vote : quorum_hold.node_votes) node_vote.awaited = false;
  }
}

std::vector<Error> QuorumStore::take_troubles() {
  nodes_->hear_arrived();
  return nodes_->take_troubles();
}

std::string QuorumStore::name() const {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < nodes_->size(); ++i) names.push_back(nodes_->name(i));
  return "the majority of " + joined(names, ", ");
}

}  // namespace dlock
