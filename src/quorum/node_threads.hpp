#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/error.hpp"
#include "base/wait.hpp"
#include "lock/member.hpp"

namespace dlock {

/// Requests to a node. Each is carried out by a call of Member; a Vote is an acquire().
struct Vote {
  Claim claim;
  Ask ask;
  Fence proposal;
};
struct Renewal {
  Claim claim;
  RenewalOptions terms;
};
struct Rejoining {
  Claim claim;
  Fence fence;
};
struct Release {
  Claim claim;
  ReleaseOptions how;
};

/// The response to a request: of a Vote an Answer, of Renewal and Rejoining a Renewed. A Wake comes
/// unasked, after a waiting Vote was refused; an Error in place of a Wake means that the
/// notification channel broke.
using Response = std::variant<Answer, Renewed, ReleaseResult, std::vector<Holder>,
                              std::vector<KeyState>, Fence, Wake, Error>;

/// Any other request.
using MemberCall = std::function<Response(Member& member, const CallOptions& call_options)>;
using NodeRequest = std::variant<Vote, Renewal, Rejoining, Release, MemberCall>;

/// Whether the request only keeps a hold. At a node, such requests of several holds wait for each
/// other, so that each is answered, however far the node is.
inline bool is_upkeep(const NodeRequest& request) {
  return std::holds_alternative<Renewal>(request) || std::holds_alternative<Rejoining>(request);
}

struct NodeReply {
  std::size_t node = 0;
  std::uint64_t request = 0;  ///< the number from ask(); 0: the node sent this without a request
  Standing standing;
  Response response;
};

/// Sends requests to the nodes of a quorum without waiting for the answers. Used by one thread at
/// a time.
class NodeClients {
 public:
  virtual ~NodeClients() = default;

  virtual std::size_t size() const = 0;
  virtual std::string name(std::size_t node) const = 0;

  /// Sends `request` and returns its number. A node executes its requests in the order of the
  /// calls. Unless all are upkeep, ask() drops the answers still owed, whose requests the node may
  /// or may not execute. If no answer comes by `deadline`, hear() returns Error{unavailable}.
  virtual std::uint64_t ask(std::size_t node, NodeRequest request, Deadline deadline) = 0;

  /// Whether all releases for `node` have been sent to its server, answered or not.
  virtual bool has_sent_releases(std::size_t node) const = 0;

  /// The sockets of the nodes; see Store::connections(). A node may close its own at any time, and
  /// the number may then belong to another file.
  virtual std::vector<int> connections() const { return {}; }

  /// The next answer of any node, or nothing at `until`. Throws Error{interrupted}.
  virtual std::optional<NodeReply> hear(Deadline until, int cancel_fd) = 0;

  /// Prepares for a fork. Drops the answers to pending requests, which may or may not have been
  /// carried out. Connects anew; no thread of this object runs until the next ask(). If it throws
  /// an Error, nothing has changed.
  virtual void begin_anew() = 0;
};

/// Opens the nodes' connections; called again before a fork.
using OpenMembers = std::function<std::vector<std::unique_ptr<Member>>()>;

/// Runs a thread for each node, which carries out the node's requests, and listens for messages in
/// between. A new request ends the current one, unless that is a release, which must arrive, or
/// both are upkeep. The destructor waits for releases for a moment, but not for nodes that never
/// answered: their releases are only sent, over connections that are open.
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
  void begin_anew() override;

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
