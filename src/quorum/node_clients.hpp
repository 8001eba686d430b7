#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/error.hpp"
#include "lock/member.hpp"

namespace dlock {

/// Requests to a node. Each is carried out by a call of Member.
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
struct Eviction {
  LockKey key;
  std::optional<Fence> fence;
  Who by;
};
struct Inspection {
  Query query;
};
struct FenceRecord {
  LockKey resource;
  Fence fence;
};
using NodeRequest =
    std::variant<Vote, Renewal, Rejoining, Release, Eviction, Inspection, FenceRecord>;

/// The response to it: of a Vote an Answer, of Renewal and Rejoining a Renewed. A Wake comes
/// unasked, after a waiting Vote was refused; an Error in place of one means that the
/// notification channel broke.
using Response = std::variant<Answer, Renewed, ReleaseResult, std::vector<Holder>,
                              std::vector<KeyState>, Fence, Wake, Error>;

struct NodeReply {
  std::size_t node = 0;
  std::uint64_t request = 0;  ///< numbered by ask(); 0: unasked
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

  /// Sends `request` and returns its number. A node carries out its requests in this order. An
  /// answer that the node still owes is dropped, and that request is done or not. If no answer
  /// comes by `deadline`, hear() returns Error{unavailable}.
  virtual std::uint64_t ask(std::size_t node, NodeRequest request, Deadline deadline) = 0;

  /// Whether all releases for `node` have been sent to its server, answered or not.
  virtual bool has_sent_releases(std::size_t node) const = 0;

  /// The sockets of the nodes; see Store::connections(). A node may close its own at any time, and
  /// the number may then belong to another file.
  virtual std::vector<int> connections() const { return {}; }

  /// The next answer of any node, or nothing at `until`. Throws Error{interrupted}.
  virtual std::optional<NodeReply> hear(Deadline until, int cancel_fd) = 0;

  /// Prepares for a fork: pending requests are done or not, and their answers are dropped. The
  /// nodes are connected anew, and no thread of this object runs until one is asked. Throws an
  /// Error with nothing changed.
  virtual void begin_anew() = 0;
};

}  // namespace dlock
