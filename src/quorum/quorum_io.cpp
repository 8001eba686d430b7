#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "quorum/merge.hpp"
#include "quorum/quorum_store.hpp"

namespace dlock {

using State = NodeVote::State;

void QuorumStore::ask(std::size_t member, const std::optional<Name>& name, NodeRequest request,
                      Deadline deadline) {
  Asked& asked = asked_[member];
  if (asked.request != 0 && asked.quorum_hold) {
    const auto before = quorum_holds_.find(*asked.quorum_hold);
    if (before != quorum_holds_.end()) before->second.node_votes[member].awaited = false;
  }
  asked = {nodes_->ask(member, std::move(request), deadline), name};
  if (name) quorum_holds_.at(*name).node_votes[member].awaited = true;
}

std::optional<NodeReply> QuorumStore::hear(Deadline until, int cancel_fd) {
  while (true) {
    auto heard = nodes_->hear(until, cancel_fd);
    if (!heard) return std::nullopt;
    check_identity(*heard);
    if (heard->standing.clock) clocks_.note(heard->member, *heard->standing.clock);
    note_trouble(*heard);
    if (heard->request == 0) {
      note_news(*heard);
      return heard;
    }
    Asked& asked = asked_[heard->member];
    late_[heard->member] = false;
    if (heard->request != asked.request) continue;
    note(*heard);
    asked = {};
    return heard;
  }
}

/// One server under two names has one vote: what it says under the second is void.
void QuorumStore::check_identity(NodeReply& heard) {
  const std::string& process = heard.standing.process;
  if (process.empty()) return;
  const auto known = members_by_process_.try_emplace(process, heard.member).first->second;
  if (known != heard.member) {
    heard.response = one_server(known, heard.member);
    return;
  }
  // A good one that became a bad one, as a replica, was named rightly.
  const auto* error = std::get_if<Error>(&heard.response);
  if (error != nullptr && error->trouble() == ErrorKind::usage) {
    heard.response = Error(ErrorKind::unavailable, error->what());
  }
}

Error QuorumStore::one_server(std::size_t one, std::size_t other) const {
  return Error(ErrorKind::usage, nodes_->name(std::min(one, other)) + " and " +
                                     nodes_->name(std::max(one, other)) +
                                     " are the same server: name each once");
}

void QuorumStore::note_trouble(const NodeReply& heard) {
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
void QuorumStore::let_out(const QuorumHold& quorum_hold, const CallOptions& call_options) {
  hear_doubles(quorum_hold, call_options);
  // What else has arrived tells how it stands.
  while (hear(BootClock::now(), -1)) {
  }
  refuse_doubles(quorum_hold);
}

void QuorumStore::hear_doubles(const QuorumHold& quorum_hold, const CallOptions& call_options) {
  // Those on one host answer at about the same time, or hang. A name that takes longer is told of
  // when its server answers.
  constexpr milliseconds longest_wait{200};
  const auto known = std::exchange(doubles_, nullptr);
  if (!known) return;
  const auto until = std::min(call_options.deadline, later(BootClock::now(), longest_wait));
  known->await_addresses(until, call_options.cancel_fd);
  refuse_shown(*known);
  const auto doubles = known->possible();
  const auto is_awaited = [&](std::size_t i) {
    return doubles[i] && quorum_hold.node_votes[i].awaited;
  };
  for (std::size_t i = 0; i < doubles.size(); ++i) {
    while (is_awaited(i)) {
      if (!hear(until, call_options.cancel_fd)) return;
    }
  }
}

void QuorumStore::refuse_shown(const DuplicateServers& doubles) const {
  if (const auto shown = doubles.shown()) throw one_server(shown->first, shown->second);
}

void QuorumStore::refuse_doubles(const QuorumHold& quorum_hold) const {
  for (const NodeVote& node_vote : quorum_hold.node_votes) {
    if (node_vote.trouble && node_vote.trouble->trouble() == ErrorKind::usage)
      throw Error(*node_vote.trouble);
  }
  if (doubles_) refuse_shown(*doubles_);
}

void QuorumStore::note(const NodeReply& heard) {
  const auto& of = asked_[heard.member].quorum_hold;
  if (of && heard.evicted_by) evictions_[*of] = *heard.evicted_by;
  const auto found = of ? quorum_holds_.find(*of) : quorum_holds_.end();
  if (found == quorum_holds_.end()) return;
  found->second.take(heard);
}

void QuorumStore::note_news(const NodeReply& heard) {
  const auto found = waiting_ ? quorum_holds_.find(*waiting_) : quorum_holds_.end();
  if (found == quorum_holds_.end()) return;
  NodeVote& node_vote = found->second.node_votes[heard.member];
  if (const auto* error = std::get_if<Error>(&heard.response)) {
    node_vote.trouble = *error;
    if (node_vote.state == State::refused) node_vote.state = State::failed;
    return;
  }
  const Wake& wake = std::get<Wake>(heard.response);
  if (wake.why == Wake::Reason::changed) news_ = wake;
  const bool may_be_told = node_vote.state == State::refused || node_vote.state == State::gone;
  if (wake.why != Wake::Reason::granted || !may_be_told) return;
  node_vote.state = State::told;
  node_vote.fence = wake.grant ? wake.grant->fence : Fence{};
}

void QuorumStore::give_up_on(QuorumHold& quorum_hold) {
  for (std::size_t i = 0; i < quorum_hold.node_votes.size(); ++i) {
    NodeVote& node_vote = quorum_hold.node_votes[i];
    if (!std::exchange(node_vote.awaited, false)) continue;
    node_vote.trouble = Error(ErrorKind::unavailable, nodes_->name(i) + ": no answer in time");
    if (node_vote.state != State::held) node_vote.state = State::failed;
  }
}

QuorumStore::Answers QuorumStore::poll(const NodeRequest& request, const CallOptions& call_options,
                                       milliseconds linger,
                                       const std::function<bool(const Answers&)>& enough) {
  Answers answers(nodes_->size());
  for (std::size_t i = 0; i < answers.size(); ++i)
    ask(i, std::nullopt, request, call_options.deadline);
  std::size_t answered = 0, of_use = 0;
  Deadline until = call_options.deadline;
  while (answered < answers.size() && !enough(answers)) {
    auto heard = hear(until, call_options.cancel_fd);
    if (!heard) break;
    if (heard->request == 0) continue;
    ++answered;
    if (!std::holds_alternative<Error>(heard->response) && ++of_use == majority()) {
      until = std::min(until, later(BootClock::now(), linger));
    }
    answers[heard->member] = std::move(heard);
  }
  return answers;
}

std::optional<Who> QuorumStore::evicted_by(const LockKey& key, const Token& token) const {
  const auto found = evictions_.find({key, token});
  return found == evictions_.end() ? std::nullopt : std::optional(found->second);
}

std::vector<Holder> QuorumStore::evict(const LockKey& key, std::optional<Fence> fence,
                                       const Who& by, const CallOptions& call_options) {
  const Answers answers = poll(Eviction{key, fence, by}, call_options, straggler_wait,
                               [](const Answers&) { return false; });
  std::vector<std::vector<Holder>> said;
  for (const auto& heard : answers) {
    const auto* holders = heard ? std::get_if<std::vector<Holder>>(&heard->response) : nullptr;
    if (holders != nullptr) said.push_back(*holders);
  }
  if (said.size() < majority()) no_majority(answers);
  return merged_holders(said);
}

std::vector<KeyState> QuorumStore::inspect(const Query& query, const CallOptions& call_options) {
  const Answers answers =
      poll(Inspection{query}, call_options, straggler_wait, [](const Answers&) { return false; });
  std::vector<std::vector<KeyState>> said;
  for (const auto& heard : answers) {
    const auto* states = heard ? std::get_if<std::vector<KeyState>>(&heard->response) : nullptr;
    if (states != nullptr) said.push_back(*states);
    const auto* error = heard ? std::get_if<Error>(&heard->response) : nullptr;
    if (error != nullptr && error->trouble() == ErrorKind::usage) throw Error(*error);
  }
  if (said.size() < majority()) no_majority(answers);
  return merged_states(query, said, nodes_->size());
}

}  // namespace dlock
