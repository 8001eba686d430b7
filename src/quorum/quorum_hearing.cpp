#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "quorum/quorum_store.hpp"

namespace dlock {

using State = Ballot::State;

void QuorumStore::ask(std::size_t member, const std::optional<Name>& name, Inquiry inquiry,
                      Deadline deadline) {
  Asked& asked = asked_[member];
  if (asked.inquiry != 0 && asked.tenure) {
    const auto before = tenures_.find(*asked.tenure);
    if (before != tenures_.end()) before->second.ballots[member].awaited = false;
  }
  asked = {council_->ask(member, std::move(inquiry), deadline), name};
  if (name) tenures_.at(*name).ballots[member].awaited = true;
}

std::optional<Heard> QuorumStore::hear(Deadline until, int interrupt_fd) {
  while (true) {
    auto heard = council_->hear(until, interrupt_fd);
    if (!heard) return std::nullopt;
    check_identity(*heard);
    note_trouble(*heard);
    if (heard->inquiry == 0) {
      note_news(*heard);
      return heard;
    }
    Asked& asked = asked_[heard->member];
    late_[heard->member] = false;
    if (heard->inquiry != asked.inquiry) continue;
    note(*heard);
    asked = {};
    return heard;
  }
}

/// One server under two names has one vote: what it says under the second is void.
void QuorumStore::check_identity(Heard& heard) {
  const std::string& process = heard.standing.process;
  if (process.empty()) return;
  const auto known = members_by_process_.try_emplace(process, heard.member).first->second;
  if (known != heard.member) {
    heard.response = one_server(known, heard.member);
    return;
  }
  // A good one that became a bad one, as a replica, was named rightly.
  const auto* error = std::get_if<Error>(&heard.response);
  if (error != nullptr && error->trouble() == Trouble::usage) {
    heard.response = Error(Trouble::unavailable, error->what());
  }
}

Error QuorumStore::one_server(std::size_t one, std::size_t other) const {
  return Error(Trouble::usage, council_->name(std::min(one, other)) + " and " +
                                   council_->name(std::max(one, other)) +
                                   " are one and the same server: name each once");
}

void QuorumStore::note_trouble(const Heard& heard) {
  const auto* error = std::get_if<Error>(&heard.response);
  if (error == nullptr) {
    untold_.erase(heard.member);
  } else if (!told_.contains({heard.member, error->trouble()})) {
    untold_.insert_or_assign(heard.member, *error);
  }
}

std::vector<Error> QuorumStore::take_troubles() {
  while (hear(BootClock::now(), -1)) {
  }
  std::vector<Error> troubles;
  for (const auto& [member, error] : std::exchange(untold_, {})) {
    told_.emplace(member, error.trouble());
    troubles.push_back(error);
  }
  return troubles;
}

/// Before a lock that was had is told of.
void QuorumStore::let_out(const Tenure& tenure, const Patience& patience) {
  hear_doubles(tenure, patience);
  // What else has arrived tells how it stands.
  while (hear(BootClock::now(), -1)) {
  }
  refuse_doubles(tenure);
}

void QuorumStore::hear_doubles(const Tenure& tenure, const Patience& patience) {
  // Those on one host answer at about the same time, or hang. A name that takes longer is told of
  // when its server answers.
  constexpr milliseconds longest_wait{200};
  const auto known = std::exchange(doubles_, nullptr);
  if (!known) return;
  const auto until = std::min(patience.deadline, later(BootClock::now(), longest_wait));
  known->await_addresses(until, patience.interrupt_fd);
  refuse_shown(*known);
  const auto doubles = known->possible();
  const auto is_awaited = [&](std::size_t i) { return doubles[i] && tenure.ballots[i].awaited; };
  for (std::size_t i = 0; i < doubles.size(); ++i) {
    while (is_awaited(i)) {
      if (!hear(until, patience.interrupt_fd)) return;
    }
  }
}

void QuorumStore::refuse_shown(const Doubles& doubles) const {
  if (const auto shown = doubles.shown()) throw one_server(shown->first, shown->second);
}

void QuorumStore::refuse_doubles(const Tenure& tenure) const {
  for (const Ballot& ballot : tenure.ballots) {
    if (ballot.trouble && ballot.trouble->trouble() == Trouble::usage) throw Error(*ballot.trouble);
  }
  if (doubles_) refuse_shown(*doubles_);
}

void QuorumStore::note(const Heard& heard) {
  const auto& of = asked_[heard.member].tenure;
  const auto found = of ? tenures_.find(*of) : tenures_.end();
  if (found == tenures_.end()) return;
  found->second.take(heard);
}

void QuorumStore::note_news(const Heard& heard) {
  const auto found = waiting_ ? tenures_.find(*waiting_) : tenures_.end();
  if (found == tenures_.end()) return;
  Ballot& ballot = found->second.ballots[heard.member];
  if (const auto* error = std::get_if<Error>(&heard.response)) {
    ballot.trouble = *error;
    if (ballot.state == State::refused) ballot.state = State::failed;
    return;
  }
  const Wake& wake = std::get<Wake>(heard.response);
  if (wake.why == Wake::Why::changed) news_ = wake;
  const bool may_be_told = ballot.state == State::refused || ballot.state == State::gone;
  if (wake.why != Wake::Why::granted || !may_be_told) return;
  ballot.state = State::told;
  ballot.fence = wake.grant ? wake.grant->fence : Fence{};
}

void QuorumStore::give_up_on(Tenure& tenure) {
  for (std::size_t i = 0; i < tenure.ballots.size(); ++i) {
    Ballot& ballot = tenure.ballots[i];
    if (!std::exchange(ballot.awaited, false)) continue;
    ballot.trouble = Error(Trouble::unavailable, council_->name(i) + ": no answer in time");
    if (ballot.state != State::held) ballot.state = State::failed;
  }
}

QuorumStore::Answers QuorumStore::poll(const Inquiry& inquiry, const Patience& patience,
                                       milliseconds linger,
                                       const std::function<bool(const Answers&)>& enough) {
  Answers answers(council_->size());
  for (std::size_t i = 0; i < answers.size(); ++i) ask(i, std::nullopt, inquiry, patience.deadline);
  std::size_t answered = 0, of_use = 0;
  Deadline until = patience.deadline;
  while (answered < answers.size() && !enough(answers)) {
    auto heard = hear(until, patience.interrupt_fd);
    if (!heard) break;
    if (heard->inquiry == 0) continue;
    ++answered;
    if (!std::holds_alternative<Error>(heard->response) && ++of_use == majority()) {
      until = std::min(until, later(BootClock::now(), linger));
    }
    answers[heard->member] = std::move(heard);
  }
  return answers;
}

}  // namespace dlock
