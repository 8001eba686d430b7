#include "quorum/nodes.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "quorum/merge.hpp"

namespace dlock {

Nodes::Nodes(std::unique_ptr<NodeClients> clients)
    : clients_(std::move(clients)),
      asked_(clients_->size()),
      late_(clients_->size()),
      clocks_(clients_->size()) {}

void Nodes::ask(std::size_t node, const std::optional<HoldName>& about, NodeRequest request,
                Deadline deadline) {
  const Asked before =
      std::exchange(asked_[node], Asked{clients_->ask(node, std::move(request), deadline), about});
  if (before.request != 0 && before.about && listener_ != nullptr) {
    listener_->on_overtaken(*before.about, node);
  }
}

std::optional<NodeReply> Nodes::hear(Deadline until, int cancel_fd) {
  while (auto reply = clients_->hear(until, cancel_fd)) {
    check_identity(*reply);
    if (reply->standing.clock) clocks_.note(reply->member, *reply->standing.clock);
    note_trouble(*reply);
    if (reply->request == 0) {
      if (listener_ != nullptr) listener_->on_news(*reply);
      return reply;
    }
    late_[reply->member] = false;
    if (reply->request != asked_[reply->member].request) continue;
    const Asked asked = std::exchange(asked_[reply->member], {});
    if (asked.about && listener_ != nullptr) listener_->on_reply(*asked.about, *reply);
    return reply;
  }
  return std::nullopt;
}

void Nodes::hear_arrived() {
  while (hear(BootClock::now(), -1)) {
  }
}

Nodes::Answers Nodes::poll(const NodeRequest& request, const CallOptions& call_options,
                           milliseconds linger, const std::function<bool(const Answers&)>& enough) {
  Answers answers(size());
  for (std::size_t i = 0; i < size(); ++i) ask(i, std::nullopt, request, call_options.deadline);
  std::size_t answered = 0, of_use = 0;
  Deadline until = call_options.deadline;
  while (answered < answers.size() && !enough(answers)) {
    auto reply = hear(until, call_options.cancel_fd);
    if (!reply) break;
    if (reply->request == 0) continue;
    ++answered;
    if (!std::holds_alternative<Error>(reply->response) && ++of_use == majority()) {
      until = std::min(until, later(BootClock::now(), linger));
    }
    answers[reply->member] = std::move(reply);
  }
  return answers;
}

void Nodes::await_stragglers(const CallOptions& call_options) {
  const auto next_straggler = [this] {
    std::size_t node = 0;
    while (node < size() && (!owes(node) || is_late(node))) ++node;
    return node;
  };
  while (next_straggler() < size() && hear(call_options.deadline, call_options.cancel_fd)) {
  }
  for (auto node = next_straggler(); node < size(); node = next_straggler()) note_late(node);
}

std::optional<HoldName> Nodes::hold_owed_beside(const HoldName& name) const {
  for (std::size_t i = 0; i < size(); ++i) {
    if (owes(i) && !is_late(i) && asked_[i].about && *asked_[i].about != name) {
      return asked_[i].about;
    }
  }
  return std::nullopt;
}

void Nodes::tell_sent_release(const Answers& answers, const CallOptions& call_options) const {
  if (call_options.sent == nullptr) return;
  for (std::size_t i = 0; i < size(); ++i) {
    const auto* error = answers[i] ? std::get_if<Error>(&answers[i]->response) : nullptr;
    const bool answered = answers[i] && (error == nullptr || is_reply(error->cause()));
    if (!answered && clients_->has_sent_releases(i)) call_options.sent->raise();
  }
}

void Nodes::begin_anew() {
  clients_->begin_anew();
  asked_.assign(size(), {});
}

/// A server under two names has one vote: its answers under the second name are void.
void Nodes::check_identity(NodeReply& reply) {
  const std::string& process = reply.standing.process;
  if (process.empty()) return;
  const auto known = nodes_by_process_.try_emplace(process, reply.member).first->second;
  if (known != reply.member) {
    reply.response = Error(ErrorKind::usage, name(std::min(known, reply.member)) + " and " +
                                                 name(std::max(known, reply.member)) +
                                                 " are the same server: name each once");
    return;
  }
  // A good server that has become a bad one, such as a replica, was named rightly.
  const auto* error = std::get_if<Error>(&reply.response);
  if (error != nullptr && error->kind() == ErrorKind::usage) {
    reply.response = Error(ErrorKind::unavailable, error->what());
  }
}

void Nodes::note_trouble(const NodeReply& reply) {
  const auto* error = std::get_if<Error>(&reply.response);
  if (error == nullptr) {
    untold_.erase(reply.member);
  } else if (!told_.contains({reply.member, error->kind()})) {
    untold_.insert_or_assign(reply.member, *error);
  }
}

std::vector<Error> Nodes::take_troubles() {
  std::vector<Error> troubles;
  for (const auto& [node, error] : std::exchange(untold_, {})) {
    told_.emplace(node, error.kind());
    troubles.push_back(error);
  }
  return troubles;
}

std::optional<ErrorKind> Nodes::take_trouble(std::size_t node) {
  const auto trouble = untold_.extract(node);
  if (trouble.empty()) return std::nullopt;
  const ErrorKind kind = trouble.mapped().kind();
  told_.emplace(node, kind);
  return kind;
}

void Nodes::throw_no_majority_of(const Answers& answers) const {
  std::vector<std::optional<Error>> troubles(answers.size());
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (!answers[i]) {
      troubles[i].emplace(ErrorKind::unavailable, name(i) + ": no answer in time");
    } else if (const auto* error = std::get_if<Error>(&answers[i]->response)) {
      troubles[i] = *error;
    }
  }
  throw_no_majority(troubles);
}

}  // namespace dlock
