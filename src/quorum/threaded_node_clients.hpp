#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/wait.hpp"
#include "quorum/node_clients.hpp"

namespace dlock {

/// Opens the nodes' connections; called again before a fork.
using OpenMembers = std::function<std::vector<std::unique_ptr<Member>>()>;

/// Runs a thread for each node that carries out its requests, and listens for messages in
/// between. A new request ends the current one, unless that is a release, which must arrive. The
/// destructor waits for releases for a moment, but not for nodes that never answered: their
/// releases are only sent, over connections that are open.
class ThreadedNodeClients final : public NodeClients {
 public:
  explicit ThreadedNodeClients(OpenMembers open);
  ~ThreadedNodeClients() override;

  std::size_t size() const override { return workers_.size(); }
  std::string name(std::size_t node) const override;
  std::uint64_t ask(std::size_t node, NodeRequest request, Deadline deadline) override;
  bool has_sent_releases(std::size_t node) const override;
  std::vector<int> connections() const override;
  std::optional<NodeReply> hear(Deadline until, int cancel_fd) override;
  void begin_anew() override { open(); }

 private:
  class NodeWorker;

  void open();
  void leave();
  void put(NodeReply reply);

  OpenMembers open_;
  std::mutex mutex_;
  std::deque<NodeReply> replies_;  ///< guarded by mutex_
  Event arrived_;                  ///< raised while there are replies
  std::uint64_t requests_ = 0;
  std::vector<std::unique_ptr<NodeWorker>> workers_;
};

}  // namespace dlock
