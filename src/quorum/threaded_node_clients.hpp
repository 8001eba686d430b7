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

/// Opens the members' connections; again before a fork.
using OpenMembers = std::function<std::vector<std::unique_ptr<Member>>()>;

/// A thread for each member does what is asked of it, and listens for news in between. A new
/// inquiry ends the one under way, but not a release, which has to arrive. Destroyed, it waits for
/// releases a moment, and of members that never answered not at all: what is not yet done is sent
/// where there is an open connection.
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
