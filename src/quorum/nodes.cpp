#include "quorum/nodes.hpp"

#include <algorithm>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/text.hpp"

namespace dlock {
namespace {

using State = NodeVote::State;

/// Throws one Error that sums up the errors of the nodes.
[[noreturn]] void throw_no_majority(const std::vector<Error>& troubles, std::size_t servers) {
  ErrorKind common = troubles.empty() ? ErrorKind::unavailable : troubles.front().kind();
  Cause cause = Cause::none;
  for (const Error& trouble : troubles) {
    if (is_refused_login(trouble.cause())) cause = trouble.cause();
    if (common != trouble.kind()) common = ErrorKind::unavailable;
  }
  const std::string text = joined(troubles, "; ", [](const Error& each) { return each.what(); });
  throw Error(
      common,
      "no majority of " + std::to_string(servers) + " servers" + (text.empty() ? "" : ": " + text),
      common == ErrorKind::denied ? cause : Cause::none);
}

}  // namespace

void ServerClocks::note(std::size_t node, const ClockReading& reading) {
  // Since the earlier reading, two clocks have drifted apart by at most one part in this many.
  constexpr int drift_one_in = 1000;
  auto& known = known_[node];
  const auto unsure = reading.received - reading.sent;
  if (known && unsure > known->unsure + (reading.received - known->read) / drift_one_in) return;
  const auto middle = reading.sent.time_since_epoch() + unsure / 2;
  known = Known{reading.server - middle, unsure, reading.received};
}

std::optional<microseconds> ServerClocks::median(Deadline when) const {
  std::vector<BootClock::duration> ahead;
  for (const auto& known : known_) {
    if (known) ahead.push_back(known->ahead);
  }
  if (ahead.empty()) return std::nullopt;
  const auto middle = ahead.begin() + static_cast<std::ptrdiff_t>((ahead.size() - 1) / 2);
  std::nth_element(ahead.begin(), middle, ahead.end());
  return std::chrono::floor<microseconds>(when.time_since_epoch() + *middle);
}

Nodes::Nodes(std::unique_ptr<NodeClients> clients)
    : clients_(std::move(clients)),
      asked_(clients_->size()),
      late_(clients_->size()),
      clocks_(clients_->size()) {}

void Nodes::ask(std::vector<NodeCall> requests, QuorumHold* about) {
  for (NodeCall& call : requests) {
    const bool upkeep = is_upkeep(call.request);
    const auto number = clients_->ask(call.node, std::move(call.request), call.deadline);
    std::erase_if(asked_[call.node], [&](const Asked& before) {
      const bool is_dropped = !upkeep || !before.is_upkeep || before.about == about;
      if (is_dropped && before.about != nullptr) {
        before.about->node_votes[call.node].awaited = false;
      }
      return is_dropped;
    });
    asked_[call.node].push_back({number, upkeep, about});
    if (about != nullptr) about->node_votes[call.node].awaited = true;
  }
}

void Nodes::forget(const QuorumHold& hold) {
  if (waiting_ == &hold) waiting_ = nullptr;
  for (auto& asked_there : asked_) {
    for (Asked& asked : asked_there) {
      if (asked.about == &hold) asked.about = nullptr;
    }
  }
}

std::optional<NodeReply> Nodes::hear(Deadline until, int cancel_fd) {
  while (auto reply = clients_->hear(until, cancel_fd)) {
    check_identity(*reply);
    if (reply->standing.clock) clocks_.note(reply->node, *reply->standing.clock);
    note_trouble(*reply);
    if (reply->request == 0) {
      if (waiting_ != nullptr) waiting_->on_notification(*reply);
      return reply;
    }
    late_[reply->node] = false;
    auto& asked = asked_[reply->node];
    const auto found = std::find_if(asked.begin(), asked.end(), [&](const Asked& each) {
      return each.number == reply->request;
    });
    if (found == asked.end()) continue;
    if (found->about != nullptr) found->about->on_reply(*reply);
    asked.erase(found);
    return reply;
  }
  return std::nullopt;
}

void Nodes::hear_arrived() {
  while (hear(BootClock::now(), -1)) {
  }
}

Nodes::Answers Nodes::poll(const NodeRequest& request, const CallOptions& call_options,
                           const std::function<bool(const Answers&)>& enough) {
  Answers answers;
  std::vector<NodeCall> requests;
  for (std::size_t i = 0; i < size(); ++i) {
    answers.emplace_back(no_answer(i));
    requests.push_back({i, request, call_options.deadline});
  }
  ask(std::move(requests), nullptr);
  std::size_t answered = 0, of_use = 0;
  Deadline until = call_options.deadline;
  while (answered < size() && !(enough && enough(answers))) {
    auto reply = hear(until, call_options.cancel_fd);
    if (!reply) break;
    if (reply->request == 0) continue;
    ++answered;
    const bool is_useful = !std::holds_alternative<Error>(reply->response);
    if (!enough && is_useful && ++of_use == majority()) {
      until = std::min(until, later(BootClock::now(), straggler_wait));
    }
    answers[reply->node] = std::move(reply->response);
  }
  return answers;
}

Error Nodes::no_answer(std::size_t node) const {
  return {ErrorKind::unavailable, name(node) + ": no answer in time"};
}

void Nodes::await_stragglers(milliseconds span, Deadline deadline) {
  const auto until = std::min(deadline, later(BootClock::now(), span));
  const auto next_straggler = [this] {
    std::size_t node = 0;
    while (node < size() && (!owes(node) || is_late(node))) ++node;
    return node;
  };
  while (next_straggler() < size() && hear(until, -1)) {
  }
  for (auto node = next_straggler(); node < size(); node = next_straggler()) note_late(node);
}

void Nodes::give_up(QuorumHold& hold) const {
  for (std::size_t i = 0; i < size(); ++i) {
    NodeVote& vote = hold.node_votes[i];
    if (!std::exchange(vote.awaited, false)) continue;
    vote.trouble = no_answer(i);
    if (vote.state != State::held) vote.state = State::failed;
  }
}

void Nodes::note_sent_release(const Answers& answers, const CallOptions& call_options) const {
  if (call_options.sent == nullptr) return;
  for (std::size_t i = 0; i < size(); ++i) {
    const auto* error = std::get_if<Error>(&answers[i]);
    const bool answered = error == nullptr || is_reply(error->cause());
    if (!answered && clients_->has_sent_releases(i)) call_options.sent->raise();
  }
}

void Nodes::begin_anew() {
  clients_->begin_anew();
  waiting_ = nullptr;
  for (std::size_t i = 0; i < size(); ++i) {
    for (const Asked& asked : std::exchange(asked_[i], {})) {
      if (asked.about != nullptr) asked.about->node_votes[i].awaited = false;
    }
  }
}

/// A server under two names has one vote: its answers under the second name are void.
void Nodes::check_identity(NodeReply& reply) {
  const std::string& process = reply.standing.process;
  if (process.empty()) return;
  const auto known = nodes_by_process_.try_emplace(process, reply.node).first->second;
  if (known != reply.node) {
    reply.response = Error(ErrorKind::usage, name(std::min(known, reply.node)) + " and " +
                                                 name(std::max(known, reply.node)) +
                                                 " are the same server: name each once");
    return;
  }
  // A known server that has become unusable, such as a new replica, is not a mistake of the user.
  const auto* error = std::get_if<Error>(&reply.response);
  if (error != nullptr && error->kind() == ErrorKind::usage) {
    reply.response = Error(ErrorKind::unavailable, error->what());
  }
}

void Nodes::note_trouble(const NodeReply& reply) {
  const auto* error = std::get_if<Error>(&reply.response);
  if (error == nullptr) {
    unreported_.erase(reply.node);
  } else if (!reported_.contains({reply.node, error->kind()})) {
    unreported_.insert_or_assign(reply.node, *error);
  }
}

std::vector<Error> Nodes::take_troubles() {
  hear_arrived();
  std::vector<Error> troubles;
  for (const auto& [node, error] : std::exchange(unreported_, {})) {
    reported_.emplace(node, error.kind());
    troubles.push_back(error);
  }
  return troubles;
}

/// The reason why a node does not count for a hold, if there is one.
std::optional<std::string> Nodes::fault_of(const QuorumHold& hold, std::size_t node) const {
  const NodeVote& vote = hold.node_votes[node];
  if (!vote.votes()) {
    return name(node) + ": no vote for another " + human_duration(vote.quarantined_for);
  }
  if (vote.trouble) return vote.trouble->what();
  if (vote.awaited) return name(node) + ": no answer";
  if (vote.state == State::gone || vote.state == State::released) {
    return name(node) + ": it lacks the hold";
  }
  return std::nullopt;
}

QuorumMargin Nodes::margin_of(const QuorumHold& hold) {
  QuorumMargin margin;
  margin.needed = hold.needed();
  margin.servers = size();
  for (std::size_t i = 0; i < size(); ++i) {
    const NodeVote& vote = hold.node_votes[i];
    const bool just_asked = vote.awaited && BootClock::now() < later(hold.asked, straggler_wait);
    // The store decided on the fence after the votes, then sent it to all nodes with another one.
    const bool differs = hold.is_confirmed(vote) && hold.acquired && vote.fence != hold.fence;
    if ((hold.is_confirmed(vote) && !differs) || just_asked) {
      ++margin.held;
      continue;
    }
    const char* otherwise =
        differs ? ": it has another fence than it was told" : ": it lacks the hold";
    margin.missing += margin.missing.empty() ? "" : "; ";
    margin.missing += fault_of(hold, i).value_or(name(i) + otherwise);
    if (const auto trouble = unreported_.extract(i)) {
      reported_.emplace(i, trouble.mapped().kind());
      margin.misnamed = margin.misnamed || trouble.mapped().kind() == ErrorKind::usage;
    }
  }
  return margin;
}

std::optional<Refusal> Nodes::too_few_votes(const QuorumHold& hold) const {
  std::vector<milliseconds> waits;
  std::vector<std::string> names;
  std::size_t able = 0;  ///< nodes that are not known to be in quarantine
  for (std::size_t i = 0; i < size(); ++i) {
    const NodeVote& vote = hold.node_votes[i];
    if (vote.is_silent() || vote.votes()) {
      ++able;
      continue;
    }
    waits.push_back(vote.quarantined_for);
    names.push_back(name(i));
  }
  if (able >= hold.needed() || able + waits.size() < hold.needed()) return std::nullopt;
  std::sort(waits.begin(), waits.end());
  Refusal refusal = merged_refusal(hold);
  refusal.why = Refusal::Reason::unready;
  refusal.ask_again_in = waits[hold.needed() - able - 1];
  refusal.reason =
      "too few of " + std::to_string(size()) +
      " servers have a vote: one that was restarted or flushed, or has evicted keys, " +
      "may have forgotten a lease, and has none for another " +
      human_duration(refusal.ask_again_in) + ": " + joined(names, ", ");
  return refusal;
}

void Nodes::throw_no_majority_of(const Answers& answers) const {
  throw_no_majority(all_of<Error>(answers), size());
}

void Nodes::throw_no_majority_of(const QuorumHold& hold) const {
  std::vector<Error> troubles;
  for (std::size_t i = 0; i < size(); ++i) {
    const auto fault = fault_of(hold, i);
    const Error unavailable(ErrorKind::unavailable, "");
    if (fault) {
      troubles.push_back(hold.node_votes[i].trouble.value_or(unavailable).reworded(*fault));
    }
  }
  throw_no_majority(troubles, size());
}

}  // namespace dlock
