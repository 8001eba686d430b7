#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "quorum/node_clients.hpp"

namespace dlock::test {

/// Node clients that return replies only after all nodes have answered. A quorum answers as soon as
/// a majority has. The next client of a test would otherwise overtake the first one at the slow
/// node, and split the votes of two requests that the test means to be in order.
///
/// All clients see this host's clock. Otherwise, if two waiters ask within the measurement error of
/// the servers' clocks, the second might be served first.
class NodesInStep final : public NodeClients {
 public:
  explicit NodesInStep(std::unique_ptr<NodeClients> nodes)
      : nodes_(std::move(nodes)), owed_(nodes_->size()) {}

  std::size_t size() const override { return nodes_->size(); }
  std::string name(std::size_t member) const override { return nodes_->name(member); }
  std::uint64_t ask(std::size_t member, NodeRequest request, Deadline deadline) override;
  bool has_sent_releases(std::size_t member) const override {
    return nodes_->has_sent_releases(member);
  }
  std::optional<NodeReply> hear(Deadline until, int cancel_fd) override;
  void begin_anew() override;

 private:
  bool any_owes() const;

  std::unique_ptr<NodeClients> nodes_;
  std::vector<std::uint64_t> owed_;  ///< the last request to each node; 0 if it was answered
  std::deque<NodeReply> heard_;
};

}  // namespace dlock::test
