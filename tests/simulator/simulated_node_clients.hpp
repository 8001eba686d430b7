#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "quorum/node_threads.hpp"
#include "simulator/network.hpp"
#include "simulator/process.hpp"
#include "support/exchanges.hpp"

namespace dlock::sim {
class SimulatedNodeWorker;

/// A reply that the client has not read yet. Its lease is dated when the client's code runs.
struct Unheard {
  NodeReply heard;
  Deadline sent{};
};

/// Connects one process to the nodes, over the virtual network.
class SimulatedNodeClients final : public NodeClients {
 public:
  /// `client`: the machine of `process`.
  SimulatedNodeClients(Process& process, std::size_t client, Network& network,
                       std::vector<Server>& servers);
  ~SimulatedNodeClients() override;

  std::size_t size() const override { return workers_.size(); }
  std::string name(std::size_t node) const override;
  std::uint64_t ask(std::size_t node, NodeRequest request, Deadline deadline) override;
  /// No client of the simulator uses this.
  bool has_sent_releases(std::size_t) const override { return true; }
  std::optional<NodeReply> hear(Deadline until, int cancel_fd) override;
  void begin_anew() override {}

  /// Called when a lock was acquired; returns how many exchanges that took.
  std::size_t had();

 private:
  Process& process_;
  std::deque<Unheard> inbox_;
  std::vector<std::shared_ptr<SimulatedNodeWorker>> workers_;
  std::uint64_t requests_ = 0;
  test::Exchanges exchanges_;
  bool voted_for_ = false;  ///< by a node, for a lock that is not acquired yet
};

}  // namespace dlock::sim
