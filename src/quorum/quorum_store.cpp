#include "quorum/quorum_store.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/join.hpp"
#include "lock/renewal_schedule.hpp"
#include "quorum/merge.hpp"

namespace dlock {
namespace {

using State = NodeVote::State;

constexpr milliseconds first_pause{10};
constexpr milliseconds longest_pause{1000};
/// How often whoever has the most votes asks for the rest, before all begin anew.
constexpr int tries_of_a_leader = 4;

milliseconds request_time(const QuorumHold& quorum_hold) {
  return quorum_hold.claim ? request_timeout(quorum_hold.claim->ttl) : silence_of_a_dead_server;
}

}  // namespace

QuorumStore::QuorumStore(std::unique_ptr<NodeClients> nodes,
                         std::shared_ptr<const DuplicateServers> doubles)
    : nodes_(std::move(nodes)),
      asked_(nodes_->size()),
      clocks_(nodes_->size()),
      late_(nodes_->size()),
      doubles_(std::move(doubles)) {}

/// Votes that came, or may yet come, for what was not had.
QuorumStore::~QuorumStore() {
  try {
    for (const auto& [name, quorum_hold] : quorum_holds_) {
      if (!quorum_hold.had) give_votes_back(name);
    }
  } catch (const std::exception&) {
    // They end with their leases.
  }
}

QuorumHold& QuorumStore::quorum_hold(const Name& name, const std::optional<Claim>& claim) {
  auto& quorum_hold = quorum_holds_.try_emplace(name, nodes_->size(), claim).first->second;
  // Renewed or released before it was asked for here.
  if (claim && !quorum_hold.claim) quorum_hold = QuorumHold(nodes_->size(), claim);
  return quorum_hold;
}

Answer QuorumStore::acquire(const Claim& claim, const Ask& asked, const CallOptions& call_options) {
  const Name name{claim.key, claim.token};
  QuorumHold& quorum_hold = this->quorum_hold(name, claim);
  // The first ask fixes the place alone: queued up, it would count as one that others wait for.
  const Ask ask{asked.wait && !asked.asks_again, asked.ticket};
  if (ask.wait) waiting_ = name;
  if (quorum_hold.asked_first == Deadline{}) quorum_hold.asked_first = BootClock::now();
  if (ask.ticket && ask.ticket->value != 0) quorum_hold.ticket = ask.ticket;
  bool has_ticket = take_ticket(quorum_hold);
  if (quorum_hold.count(State::returned) > 0) return split(name);
  ++quorum_hold.round;
  // One that was handed over, and ended before it was confirmed, may come again with another.
  if (!quorum_hold.had) quorum_hold.fence = Fence{};
  ask_for_votes(name, ask, call_options.deadline);
  bool newcomer = ask.wait && claim.latest && !std::exchange(quorum_hold.queued, true);
  for (int tries = 1;; ++tries) {
    if (const auto grant = settle(name, call_options)) {
      let_out(quorum_hold, call_options);
      quorum_hold.margin = margin_now(quorum_hold);
      return *grant;
    }
    refuse_doubles(quorum_hold);
    // The answers have told the clocks: now its place can be the same everywhere.
    if (!std::exchange(has_ticket, take_ticket(quorum_hold)) && has_ticket && ask.wait) {
      ask_for_votes(name, ask, call_options.deadline);
      continue;
    }
    if (std::exchange(newcomer, false) && comes_after(quorum_hold)) {
      ask_for_votes(name, ask, call_options.deadline);
      continue;
    }
    const VoteCount now = count_votes(quorum_hold, BootClock::now());
    const bool go_on = !ask.wait && !now.decided && now.leading && tries < tries_of_a_leader;
    if (!go_on) return not_had(name, ask);
    // The others see the same votes, and give theirs back meanwhile.
    const auto pause = later(BootClock::now(), next_pause(claim.key));
    if (pause >= call_options.deadline) return not_had(name, ask);
    while (hear(pause, call_options.cancel_fd)) {
    }
    ask_for_votes(name, ask, call_options.deadline);
  }
}

/// Before any member has told its clock, this host's: they take it as within a minute of theirs.
Fence QuorumStore::next_proposal() const {
  const auto median = clocks_.median(BootClock::now());
  return Fence{median.value_or(wall_now().time_since_epoch()).count()};
}

/// Whether it has a ticket: the members' clock when it was first asked for, once that is known.
bool QuorumStore::take_ticket(QuorumHold& quorum_hold) const {
  const auto median = clocks_.median(quorum_hold.asked_first);
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

void QuorumStore::ask_for_votes(const Name& name, const Ask& ask, Deadline deadline) {
  QuorumHold& quorum_hold = quorum_holds_.at(name);
  // The same for all, so that they agree in one round as a rule.
  quorum_hold.proposal = next_proposal();
  const auto now = quorum_hold.asked = BootClock::now();
  // Half of the time is for what is to be done with it.
  quorum_hold.fence_by = std::min(later(now, straggler_wait), now + (deadline - now) / 2);
  for (std::size_t i = 0; i < quorum_hold.node_votes.size(); ++i) {
    const NodeVote& node_vote = quorum_hold.node_votes[i];
    if (!ask.wait && node_vote.state == State::held && node_vote.round == quorum_hold.round)
      continue;
    this->ask(i, name,
              Vote{*quorum_hold.claim, {ask.wait, quorum_hold.ticket}, quorum_hold.proposal},
              deadline);
  }
}

/// Hears what the members say until it is had, or cannot be.
std::optional<Grant> QuorumStore::settle(const Name& name, const CallOptions& call_options) {
  QuorumHold& quorum_hold = quorum_holds_.at(name);
  std::optional<Deadline> rest;
  while (true) {
    if (auto grant = decided(name, call_options.deadline)) return grant;
    const auto now = BootClock::now();
    const bool clear = quorum_hold.awaited() == 0 || count_votes(quorum_hold, now).decided;
    if (!quorum_hold.may_win(now) && clear) return std::nullopt;
    const bool looking_for_it = quorum_hold.fence_may_be_found(now);
    if (!looking_for_it && others_have_said_enough(quorum_hold, rest)) return std::nullopt;
    auto until = std::min(call_options.deadline, rest.value_or(never));
    if (looking_for_it) until = quorum_hold.fence_by;
    if (hear(until, call_options.cancel_fd) || BootClock::now() < call_options.deadline) continue;
    give_up_on(quorum_hold);
    return std::nullopt;
  }
}

/// Whether the members that still owe an answer are not to be waited for: enough others have
/// answered, and these have had time since, or have let us wait before.
bool QuorumStore::others_have_said_enough(const QuorumHold& quorum_hold,
                                          std::optional<Deadline>& rest) {
  const auto said = quorum_hold.node_votes.size() - quorum_hold.unknown() - quorum_hold.awaited();
  if (said < quorum_hold.needed() || quorum_hold.awaited_holders() > 0) {
    rest.reset();
    return false;
  }
  const auto now = BootClock::now();
  if (!rest) rest = later(now, straggler_wait);
  bool all_late = true;
  for (std::size_t i = 0; i < quorum_hold.node_votes.size(); ++i) {
    if (!quorum_hold.node_votes[i].awaited) continue;
    if (now >= *rest) late_[i] = true;
    all_late = all_late && late_[i];
  }
  return all_late;
}

std::optional<Grant> QuorumStore::decided(const Name& name, Deadline deadline) {
  QuorumHold& quorum_hold = quorum_holds_.at(name);
  const auto now = BootClock::now();
  if (quorum_hold.confirmed() < quorum_hold.needed()) return std::nullopt;
  if (quorum_hold.fence_may_be_found(now)) return std::nullopt;
  if (quorum_hold.fence.value == 0) quorum_hold.fence = quorum_hold.least_common_fence(now);
  if (const auto lease = quorum_hold.lease(now)) {
    quorum_hold.had = true;
    rejoin(name);
    pauses_.erase(name.first);
    return Grant{quorum_hold.fence, *lease};
  }
  for (std::size_t i = 0; i < quorum_hold.node_votes.size(); ++i) {
    NodeVote& node_vote = quorum_hold.node_votes[i];
    const bool lower = node_vote.state == State::held && node_vote.fence < quorum_hold.fence;
    if (!lower || node_vote.awaited || node_vote.raised == quorum_hold.round) continue;
    node_vote.raised = quorum_hold.round;
    ask(i, name, Renewal{name.first, name.second, std::nullopt, quorum_hold.fence}, deadline);
  }
  return std::nullopt;
}

milliseconds QuorumStore::next_pause(const LockKey& key) {
  auto& pause = pauses_[key];
  pause = std::clamp(pause * 2, first_pause, longest_pause);
  return pause;
}

/// What may be held anywhere; a waiter keeps its places in the queues.
void QuorumStore::give_votes_back(const Name& name) {
  QuorumHold& quorum_hold = quorum_holds_.at(name);
  const auto deadline = later(BootClock::now(), request_time(quorum_hold));
  for (std::size_t i = 0; i < quorum_hold.node_votes.size(); ++i) {
    NodeVote& node_vote = quorum_hold.node_votes[i];
    if (node_vote.state == State::refused && !node_vote.awaited) continue;
    ask(i, std::nullopt, Release{name.first, name.second, ReleaseMode::ignore_floor}, deadline);
    node_vote.state = State::returned;
  }
}

/// The members without the hold take it down, past their queues; all with its fence.
void QuorumStore::rejoin(const Name& name) {
  const QuorumHold& quorum_hold = quorum_holds_.at(name);
  if (!quorum_hold.claim) return;
  const auto deadline = later(BootClock::now(), request_time(quorum_hold));
  for (std::size_t i = 0; i < quorum_hold.node_votes.size(); ++i) {
    const NodeVote& node_vote = quorum_hold.node_votes[i];
    const bool lacks_it = node_vote.state == State::refused || node_vote.state == State::gone;
    const bool differs = node_vote.state == State::held && node_vote.fence != quorum_hold.fence;
    if ((!lacks_it && !differs) || node_vote.awaited) continue;
    ask(i, name, Rejoining{*quorum_hold.claim, quorum_hold.fence}, deadline);
  }
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
      no_majority(quorum_hold);
    if (std::exchange(known, with_it()) < known) {
      const auto settling = std::min(longest_settling, request_timeout(claim.ttl));
      end = std::min(end, later(now, settling));
    }
    try {
      if (!hear(end, cancel_fd)) return Wake{Wake::Reason::due, {}};
    } catch (const Error& error) {
      if (error.trouble() != ErrorKind::interrupted) throw;
      return Wake{Wake::Reason::interrupted, {}};
    }
    if (news_) return *std::exchange(news_, std::nullopt);
  }
}

std::optional<Grant> QuorumStore::renew_hold(const Claim& claim, Fence fence,
                                             const CallOptions& call_options) {
  QuorumHold& quorum_hold = this->quorum_hold({claim.key, claim.token}, claim);
  if (!quorum_hold.had) quorum_hold.fence = fence;
  quorum_hold.had = true;
  return renew(claim.key, claim.token, std::nullopt, call_options);
}

std::optional<Grant> QuorumStore::renew(const LockKey& key, const Token& token,
                                        std::optional<milliseconds> ttl,
                                        const CallOptions& call_options) {
  const Name name{key, token};
  QuorumHold& quorum_hold = this->quorum_hold(name, std::nullopt);
  while (hear(BootClock::now(), -1)) {
  }
  const bool asked_before = quorum_hold.round > 1;
  if (quorum_hold.had && asked_before) quorum_hold.margin = margin_now(quorum_hold);
  ++quorum_hold.round;
  if (quorum_hold.fence.value == 0)
    quorum_hold.fence = quorum_hold.least_common_fence(BootClock::now());
  for (std::size_t i = 0; i < quorum_hold.node_votes.size(); ++i) {
    const State state = quorum_hold.node_votes[i].state;
    // Who has said that it lacks the hold is made to re-join once the others have renewed it.
    if (state == State::returned || (state == State::gone && quorum_hold.had && quorum_hold.claim))
      continue;
    const pid_t command = quorum_hold.claim ? quorum_hold.claim->who.command_pid : 0;
    ask(i, name, Renewal{key, token, ttl, quorum_hold.fence, command}, call_options.deadline);
  }
  const bool is_new = !quorum_hold.had;
  while (true) {
    if (auto grant = decided(name, call_options.deadline)) {
      if (is_new) let_out(quorum_hold, call_options);
      return grant;
    }
    const auto without = quorum_hold.count(State::gone) + quorum_hold.count(State::returned);
    const bool gone = without > quorum_hold.node_votes.size() - quorum_hold.needed();
    const bool at_odds =
        quorum_hold.confirmed() >= quorum_hold.needed() && !quorum_hold.may_win(BootClock::now());
    if (gone || at_odds) return std::nullopt;
    if (!quorum_hold.may_be_confirmed()) no_majority(quorum_hold);
    if (hear(call_options.deadline, call_options.cancel_fd)) continue;
    give_up_on(quorum_hold);
    no_majority(quorum_hold);
  }
}

bool QuorumStore::command_started(const Claim& claim, pid_t) {
  auto& own = quorum_hold({claim.key, claim.token}, claim).claim;
  own->who.command_pid = claim.who.command_pid;
  return true;
}

void QuorumStore::renewed_by_other_connection(const Claim& claim) {
  quorum_holds_.at({claim.key, claim.token}).shared = true;
}

Released QuorumStore::release(const LockKey& key, const Token& token, ReleaseMode mode,
                              const CallOptions& call_options) {
  const auto found = quorum_holds_.find({key, token});
  const bool ours = found != quorum_holds_.end();
  const bool had = !ours || found->second.had;
  std::size_t yes = 0, left = 0, no = 0;
  const auto counted = [&](const Answers& answers) {
    yes = left = no = 0;
    std::size_t owed = 0;
    for (std::size_t i = 0; i < answers.size(); ++i) {
      const auto* said = answers[i] ? std::get_if<Released>(&answers[i]->response) : nullptr;
      // Of who never answered before nothing is expected now.
      const bool silent = ours && found->second.node_votes[i].is_silent();
      if (!answers[i] && !silent) ++owed;
      if (said == nullptr) continue;
      ++(*said == Released::yes ? yes : *said == Released::left_queue ? left : no);
    }
    return yes >= majority() || no + left > answers.size() - majority() || owed == 0;
  };
  const Release request{key, token, mode, ours && found->second.shared};
  const Answers answers = poll(request, call_options, left_until(call_options.deadline), counted);
  counted(answers);
  for (const auto& heard : answers) {
    if (heard && heard->evicted_by) evictions_[{key, token}] = *heard->evicted_by;
  }
  if (had && yes < majority() && yes + left + no < majority()) no_majority(answers);
  if (ours) quorum_holds_.erase(found);
  if (waiting_ == Name{key, token}) waiting_.reset();
  if (no + left > answers.size() - majority()) {
    return left > 0 ? Released::left_queue : Released::not_held;
  }
  return yes > 0 ? Released::yes : left > 0 ? Released::left_queue : Released::not_held;
}

void QuorumStore::before_fork() {
  // Else whoever clears up last would use what the other process has.
  std::erase_if(quorum_holds_, [this](const auto& each) {
    const auto& [name, quorum_hold] = each;
    if (!quorum_hold.had) give_votes_back(name);
    return !quorum_hold.had;
  });
  waiting_.reset();
  news_.reset();
  nodes_->begin_anew();
  asked_.assign(nodes_->size(), {});
  for (auto& [name, quorum_hold] : quorum_holds_) {
    for (NodeVote& node_vote : quorum_hold.node_votes) node_vote.awaited = false;
  }
}

std::string QuorumStore::name() const {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < nodes_->size(); ++i) names.push_back(nodes_->name(i));
  return "the majority of " + joined(names, ", ");
}

}  // namespace dlock
