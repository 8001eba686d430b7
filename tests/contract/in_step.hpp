#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "quorum/node_clients.hpp"

namespace dlock::test {

/// Nodes of which a client hears once all have done what it asked of them. A quorum answers as soon
/// as a majority has; the next client of a test would otherwise overtake the one before it at the
/// server that is still busy, and the votes of the two would be split where the test tells of one
/// after the other.
///
/// All clients see the same clock, that of this host: of two waiters that ask within the error of
/// what each measures of the servers' clocks, the second might be served first.
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
  std::vector<std::uint64_t> owed_;  ///< the last request to each node; 0: it was answered
  std::deque<NodeReply> heard_;
};

}  // namespace dlock::test
