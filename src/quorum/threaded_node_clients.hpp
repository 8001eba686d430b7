#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/wait.hpp"
#include "quorum/node_clients.hpp"

namespace dlock {

/// Opens the members' connections; called again before a fork.
using OpenMembers = std::function<std::vector<std::unique_ptr<Member>>()>;

/// Runs a thread for each member that carries out its requests, and listens for messages in
/// between. A new request ends the current one, unless that is a release, which must arrive. The
/// destructor waits for releases for a moment, but not for members that never answered: their
/// releases are only sent, over connections that are open.
class ThreadedNodeClients final : public NodeClients {
 public:
  explicit ThreadedNodeClients(OpenMembers open);
  ~ThreadedNodeClients() override;

  std::size_t size() const override { return workers_.size(); }
  std::string name(std::size_t member) const override { return names_[member]; }
  std::uint64_t ask(std::size_t member, NodeRequest request, Deadline deadline) override;
  bool has_sent_releases(std::size_t member) const override;
  std::optional<NodeReply> hear(Deadline until, int cancel_fd) override;
  void begin_anew() override { open(); }

 private:
  class ReplyBox;
  class NodeWorker;

  void open();
  void leave();

  OpenMembers open_;
  std::vector<std::string> names_;
  std::unique_ptr<ReplyBox> replies_;
  std::vector<std::unique_ptr<NodeWorker>> workers_;
  std::uint64_t inquiries_ = 0;
};

}  // namespace dlock
