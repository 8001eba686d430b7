#include "quorum/quorum_store.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/join.hpp"
#include "lock/lease_upkeep.hpp"
#include "quorum/merge.hpp"

namespace dlock {
namespace {

using State = Ballot::State;

constexpr milliseconds first_pause{10};
constexpr milliseconds longest_pause{1000};
/// How often whoever has the most votes asks for the rest, before all begin anew.
constexpr int tries_of_a_leader = 4;

Fence clock_now() { return Fence{wall_now().time_since_epoch().count()}; }

milliseconds request_time(const Tenure& tenure) {
  return tenure.claim ? request_timeout(tenure.claim->ttl) : silence_of_a_dead_server;
}

}  // namespace

QuorumStore::QuorumStore(std::unique_ptr<Council> council, std::shared_ptr<const Doubles> doubles)
    : council_(std::move(council)),
      asked_(council_->size()),
      late_(council_->size()),
      doubles_(std::move(doubles)) {}

/// Votes that came, or may yet come, for what was not had.
QuorumStore::~QuorumStore() {
  try {
    for (const auto& [name, tenure] : tenures_) {
      if (!tenure.had) give_votes_back(name);
    }
  } catch (const std::exception&) {
    // They end with their leases.
  }
}

Tenure& QuorumStore::tenure(const Name& name, const std::optional<Claim>& claim) {
  auto& tenure = tenures_.try_emplace(name, council_->size(), claim).first->second;
  // Renewed or released before it was asked for here.
  if (claim && !tenure.claim) tenure = Tenure(council_->size(), claim);
  return tenure;
}

Answer QuorumStore::acquire(const Claim& claim, const Ask& ask, const Patience& patience) {
  const Name name{claim.key, claim.token};
  Tenure& tenure = this->tenure(name, claim);
  if (ask.wait) {
    waiting_ = name;
    tenure.ticket = ask.ticket.value_or(tenure.ticket.value_or(Ticket{clock_now().value}));
  }
  if (tenure.count(State::returned) > 0) return split(name);
  ++tenure.round;
  // One that was handed over, and ended before it was confirmed, may come again with another.
  if (!tenure.had) tenure.fence = Fence{};
  ask_for_votes(name, ask, patience.deadline);
  for (int tries = 1;; ++tries) {
    if (const auto grant = settle(name, patience)) {
      let_out(tenure, patience);
      tenure.margin = margin_now(tenure);
      return *grant;
    }
    refuse_doubles(tenure);
    const Contest now = contest(tenure, BootClock::now());
    const bool go_on = !ask.wait && !now.decided && now.leading && tries < tries_of_a_leader;
    if (!go_on) return not_had(name, ask);
    // The others see the same votes, and give theirs back meanwhile.
    const auto pause = later(BootClock::now(), next_pause(claim.key));
    if (pause >= patience.deadline) return not_had(name, ask);
    while (hear(pause, patience.interrupt_fd)) {
    }
    ask_for_votes(name, ask, patience.deadline);
  }
}

void QuorumStore::ask_for_votes(const Name& name, const Ask& ask, Deadline deadline) {
  Tenure& tenure = tenures_.at(name);
  // The same for all, so that they agree in one round as a rule.
  tenure.proposal = clock_now();
  const auto now = tenure.asked = BootClock::now();
  // Half of the time is for what is to be done with it.
  tenure.fence_by = std::min(later(now, for_the_rest), now + (deadline - now) / 2);
  for (std::size_t i = 0; i < tenure.ballots.size(); ++i) {
    const Ballot& ballot = tenure.ballots[i];
    if (!ask.wait && ballot.state == State::held && ballot.round == tenure.round) continue;
    this->ask(i, name, Vote{*tenure.claim, {ask.wait, tenure.ticket}, tenure.proposal}, deadline);
  }
}

/// Hears what the members say until it is had, or cannot be.
std::optional<Grant> QuorumStore::settle(const Name& name, const Patience& patience) {
  Tenure& tenure = tenures_.at(name);
  std::optional<Deadline> rest;
  while (true) {
    if (auto grant = decided(name, patience.deadline)) return grant;
    const auto now = BootClock::now();
    const bool clear = tenure.awaited() == 0 || contest(tenure, now).decided;
    if (!tenure.may_win(now) && clear) return std::nullopt;
    const bool looking_for_it = tenure.fence_may_be_found(now);
    if (!looking_for_it && others_have_said_enough(tenure, rest)) return std::nullopt;
    auto until = std::min(patience.deadline, rest.value_or(never));
    if (looking_for_it) until = tenure.fence_by;
    if (hear(until, patience.interrupt_fd) || BootClock::now() < patience.deadline) continue;
    give_up_on(tenure);
    return std::nullopt;
  }
}

/// Whether the members that still owe an answer are not to be waited for: enough others have
/// answered, and these have had time since, or have let us wait before.
bool QuorumStore::others_have_said_enough(const Tenure& tenure, std::optional<Deadline>& rest) {
  const auto said = tenure.ballots.size() - tenure.unknown() - tenure.awaited();
  if (said < tenure.needed() || tenure.awaited_holders() > 0) {
    rest.reset();
    return false;
  }
  const auto now = BootClock::now();
  if (!rest) rest = later(now, for_the_rest);
  bool all_late = true;
  for (std::size_t i = 0; i < tenure.ballots.size(); ++i) {
    if (!tenure.ballots[i].awaited) continue;
    if (now >= *rest) late_[i] = true;
    all_late = all_late && late_[i];
  }
  return all_late;
}

std::optional<Grant> QuorumStore::decided(const Name& name, Deadline deadline) {
  Tenure& tenure = tenures_.at(name);
  const auto now = BootClock::now();
  if (tenure.confirmed() < tenure.needed()) return std::nullopt;
  if (tenure.fence_may_be_found(now)) return std::nullopt;
  if (tenure.fence.value == 0) tenure.fence = tenure.least_common_fence(now);
  if (const auto lease = tenure.lease(now)) {
    tenure.had = true;
    rejoin(name);
    pauses_.erase(name.first);
    return Grant{tenure.fence, *lease};
  }
  for (std::size_t i = 0; i < tenure.ballots.size(); ++i) {
    Ballot& ballot = tenure.ballots[i];
    const bool lower = ballot.state == State::held && ballot.fence < tenure.fence;
    if (!lower || ballot.awaited || ballot.raised == tenure.round) continue;
    ballot.raised = tenure.round;
    ask(i, name, Renewal{name.first, name.second, std::nullopt, tenure.fence}, deadline);
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
  Tenure& tenure = tenures_.at(name);
  const auto deadline = later(BootClock::now(), request_time(tenure));
  for (std::size_t i = 0; i < tenure.ballots.size(); ++i) {
    Ballot& ballot = tenure.ballots[i];
    if (ballot.state == State::refused && !ballot.awaited) continue;
    ask(i, std::nullopt, Release{name.first, name.second, ReleaseMode::ignore_floor}, deadline);
    ballot.state = State::returned;
  }
}

/// The members without the hold take it down, past their queues; all with its fence.
void QuorumStore::rejoin(const Name& name) {
  const Tenure& tenure = tenures_.at(name);
  if (!tenure.claim) return;
  const auto deadline = later(BootClock::now(), request_time(tenure));
  for (std::size_t i = 0; i < tenure.ballots.size(); ++i) {
    const Ballot& ballot = tenure.ballots[i];
    const bool lacks_it = ballot.state == State::refused || ballot.state == State::gone;
    const bool differs = ballot.state == State::held && ballot.fence != tenure.fence;
    if ((!lacks_it && !differs) || ballot.awaited) continue;
    ask(i, name, Rejoining{*tenure.claim, tenure.fence}, deadline);
  }
}

Wake QuorumStore::sleep(const Claim& claim, Deadline until, int interrupt_fd) {
  Tenure& tenure = tenures_.at({claim.key, claim.token});
  const auto with_it = [&] { return tenure.count(State::told) + tenure.count(State::held); };
  auto known = with_it();
  Deadline end = until;
  while (true) {
    const auto now = BootClock::now();
    if (tenure.count(State::told) + tenure.holding(now).size() >= tenure.needed()) {
      return Wake{Wake::Why::granted, {}};
    }
    if (tenure.ballots.size() - tenure.count(State::failed) < tenure.needed()) no_majority(tenure);
    if (std::exchange(known, with_it()) < known) {
      const auto settling = std::min(longest_settling, request_timeout(claim.ttl));
      end = std::min(end, later(now, settling));
    }
    try {
      if (!hear(end, interrupt_fd)) return Wake{Wake::Why::due, {}};
    } catch (const Error& error) {
      if (error.trouble() != Trouble::interrupted) throw;
      return Wake{Wake::Why::interrupted, {}};
    }
    if (news_) return *std::exchange(news_, std::nullopt);
  }
}

std::optional<Grant> QuorumStore::uphold(const Claim& claim, Fence fence,
                                         const Patience& patience) {
  Tenure& tenure = this->tenure({claim.key, claim.token}, claim);
  if (!tenure.had) tenure.fence = fence;
  tenure.had = true;
  return renew(claim.key, claim.token, std::nullopt, patience);
}

std::optional<Grant> QuorumStore::renew(const LockKey& key, const Token& token,
                                        std::optional<milliseconds> ttl, const Patience& patience) {
  const Name name{key, token};
  Tenure& tenure = this->tenure(name, std::nullopt);
  while (hear(BootClock::now(), -1)) {
  }
  const bool asked_before = tenure.round > 1;
  if (tenure.had && asked_before) tenure.margin = margin_now(tenure);
  ++tenure.round;
  if (tenure.fence.value == 0) tenure.fence = tenure.least_common_fence(BootClock::now());
  for (std::size_t i = 0; i < tenure.ballots.size(); ++i) {
    const State state = tenure.ballots[i].state;
    // Who has said that it lacks the hold is made to re-join once the others have renewed it.
    if (state == State::returned || (state == State::gone && tenure.had && tenure.claim)) continue;
    ask(i, name, Renewal{key, token, ttl, tenure.fence}, patience.deadline);
  }
  const bool is_new = !tenure.had;
  while (true) {
    if (auto grant = decided(name, patience.deadline)) {
      if (is_new) let_out(tenure, patience);
      return grant;
    }
    const auto without = tenure.count(State::gone) + tenure.count(State::returned);
    const bool gone = without > tenure.ballots.size() - tenure.needed();
    const bool at_odds = tenure.confirmed() >= tenure.needed() && !tenure.may_win(BootClock::now());
    if (gone || at_odds) return std::nullopt;
    if (!tenure.may_be_confirmed()) no_majority(tenure);
    if (hear(patience.deadline, patience.interrupt_fd)) continue;
    give_up_on(tenure);
    no_majority(tenure);
  }
}

void QuorumStore::upheld_elsewhere(const Claim& claim) {
  tenures_.at({claim.key, claim.token}).shared = true;
}

Released QuorumStore::release(const LockKey& key, const Token& token, ReleaseMode mode,
                              const Patience& patience) {
  const auto found = tenures_.find({key, token});
  const bool ours = found != tenures_.end();
  const bool had = !ours || found->second.had;
  std::size_t yes = 0, left = 0, no = 0;
  const auto counted = [&](const Answers& answers) {
    yes = left = no = 0;
    std::size_t owed = 0;
    for (std::size_t i = 0; i < answers.size(); ++i) {
      const auto* said = answers[i] ? std::get_if<Released>(&answers[i]->response) : nullptr;
      // Of who never answered before nothing is expected now.
      const bool silent = ours && found->second.ballots[i].is_silent();
      if (!answers[i] && !silent) ++owed;
      if (said == nullptr) continue;
      ++(*said == Released::yes ? yes : *said == Released::left_queue ? left : no);
    }
    return yes >= majority() || no + left > answers.size() - majority() || owed == 0;
  };
  const Release inquiry{key, token, mode, ours && found->second.shared};
  const Answers answers = poll(inquiry, patience, left_until(patience.deadline), counted);
  counted(answers);
  if (had && yes < majority() && yes + left + no < majority()) no_majority(answers);
  if (ours) tenures_.erase(found);
  if (waiting_ == Name{key, token}) waiting_.reset();
  if (no + left > answers.size() - majority()) {
    return left > 0 ? Released::left_queue : Released::not_held;
  }
  return yes > 0 ? Released::yes : left > 0 ? Released::left_queue : Released::not_held;
}

std::vector<Holder> QuorumStore::force_release(const LockKey& key, std::optional<Fence> fence,
                                               const Patience& patience) {
  const Answers answers =
      poll(ForcedRelease{key, fence}, patience, for_the_rest, [](const Answers&) { return false; });
  std::vector<std::vector<Holder>> said;
  for (const auto& heard : answers) {
    const auto* holders = heard ? std::get_if<std::vector<Holder>>(&heard->response) : nullptr;
    if (holders != nullptr) said.push_back(*holders);
  }
  if (said.size() < majority()) no_majority(answers);
  return merged_holders(said);
}

std::vector<KeyState> QuorumStore::inspect(const Query& query, const Patience& patience) {
  const Answers answers =
      poll(Inspection{query}, patience, for_the_rest, [](const Answers&) { return false; });
  std::vector<std::vector<KeyState>> said;
  for (const auto& heard : answers) {
    const auto* states = heard ? std::get_if<std::vector<KeyState>>(&heard->response) : nullptr;
    if (states != nullptr) said.push_back(*states);
    const auto* error = heard ? std::get_if<Error>(&heard->response) : nullptr;
    if (error != nullptr && error->trouble() == Trouble::usage) throw Error(*error);
  }
  if (said.size() < majority()) no_majority(answers);
  return merged_states(query, said, council_->size());
}

void QuorumStore::before_fork() {
  // Else whoever clears up last would use what the other process has.
  std::erase_if(tenures_, [this](const auto& each) {
    const auto& [name, tenure] = each;
    if (!tenure.had) give_votes_back(name);
    return !tenure.had;
  });
  waiting_.reset();
  news_.reset();
  council_->begin_anew();
  asked_.assign(council_->size(), {});
  for (auto& [name, tenure] : tenures_) {
    for (Ballot& ballot : tenure.ballots) ballot.awaited = false;
  }
}

std::string QuorumStore::name() const {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < council_->size(); ++i) names.push_back(council_->name(i));
  return "the majority of " + joined(names, ", ");
}

}  // namespace dlock
