#include "simulator/simulated_node_clients.hpp"

#include <utility>

#include "base/wait.hpp"
#include "simulator/node_worker.hpp"

namespace dlock::sim {

namespace {

/// Sets the end of a granted lease, as the client counts it.
void date(Response& response, Deadline sent) {
  const auto date_lease = [sent](Grant& grant) {
    if (grant.confirmed) grant.lease.valid_until = valid_until(sent, grant.lease.length);
  };
  if (auto* answer = std::get_if<Answer>(&response)) {
    if (auto* grant = std::get_if<Grant>(answer)) date_lease(*grant);
  }
  if (auto* renewed = std::get_if<Renewed>(&response)) {
    if (renewed->grant) date_lease(*renewed->grant);
  }
}

}  // namespace

SimulatedNodeClients::SimulatedNodeClients(Process& process, std::size_t client, Network& network,
                                           std::vector<Server>& servers)
    : process_(process), exchanges_(servers.size()) {
  for (std::size_t node = 0; node < servers.size(); ++node) {
    workers_.push_back(std::make_shared<SimulatedNodeWorker>(process, inbox_, network,
                                                             servers[node], client, node));
  }
}

SimulatedNodeClients::~SimulatedNodeClients() {
  for (const auto& worker : workers_) worker->leave();
}

std::string SimulatedNodeClients::name(std::size_t node) const {
  return "m" + std::to_string(node);
}

std::uint64_t SimulatedNodeClients::ask(std::size_t node, NodeRequest request, Deadline deadline) {
  const auto number = ++requests_;
  exchanges_.asked(node, request);
  if (std::holds_alternative<Release>(request)) {
    process_.note_release();
    if (std::exchange(voted_for_, false)) World::here().count("split votes released");
  }
  if (!process_.killed()) workers_[node]->post({number, std::move(request), deadline});
  return number;
}

std::optional<NodeReply> SimulatedNodeClients::hear(Deadline until, int cancel_fd) {
  while (true) {
    if (!inbox_.empty()) {
      Unheard next = std::move(inbox_.front());
      inbox_.pop_front();
      date(next.heard.response, next.sent);
      exchanges_.heard(next.heard);
      const auto* answer = std::get_if<Answer>(&next.heard.response);
      if (answer != nullptr && std::holds_alternative<Grant>(*answer)) voted_for_ = true;
      return std::move(next.heard);
    }
    const auto now = BootClock::now();
    if (now >= until) return std::nullopt;
    if (cancel_fd >= 0 && readable(cancel_fd)) {
      throw Error(ErrorKind::interrupted, "interrupted");
    }
    process_.wait(until, now);
  }
}

std::size_t SimulatedNodeClients::had() {
  voted_for_ = false;
  return exchanges_.taken();
}

}  // namespace dlock::sim
