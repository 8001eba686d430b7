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

/// A request to a member, carried out by a call of Member.
struct Vote {
  Claim claim;
  Ask ask;
  Fence proposal;
};
struct Renewal {
  Claim claim;
  RenewalTerms terms;
};
struct Rejoining {
  Claim claim;
  Fence fence;
};
struct Release {
  Claim claim;
  ReleaseOptions how;
};
struct HolderQuery {
  LockKey key;
};
struct Eviction {
  LockKey key;
  std::vector<Holder> seen;
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
    std::variant<Vote, Renewal, Rejoining, Release, HolderQuery, Eviction, Inspection, FenceRecord>;

/// The response to it: of a Vote an Answer, of Renewal and Rejoining a Renewed. A Wake comes
/// unasked, after a waiting Vote was refused; an Error in place of one means that the news channel
/// broke.
using Response = std::variant<Answer, Renewed, ReleaseResult, std::vector<Holder>,
                              std::vector<KeyState>, Fence, Wake, Error>;

struct NodeReply {
  std::size_t member = 0;
  std::uint64_t request = 0;  ///< as ask() numbered it; 0: unasked
  Standing standing;
  Response response;
};

/// The members of a quorum, asked without waiting for them. One thread at a time.
class NodeClients {
 public:
  virtual ~NodeClients() = default;

  virtual std::size_t size() const = 0;
  virtual std::string name(std::size_t member) const = 0;

  /// Sends `request` on its way, and returns its number. What one member is asked it does in that
  /// order. An answer still owed by this member is no longer waited for, and never heard; what was
  /// asked is done or not. No answer by `deadline` is heard as Error{unavailable}.
  virtual std::uint64_t ask(std::size_t member, NodeRequest request, Deadline deadline) = 0;

  /// Whether all that `member` was asked to release has been sent to its server, answered or not.
  virtual bool has_sent_releases(std::size_t member) const = 0;

  /// The next answer of any member, or nothing at `until`. Throws Error{interrupted}.
  virtual std::optional<NodeReply> hear(Deadline until, int cancel_fd) = 0;

  /// Before a fork: what was asked is done or not, and never heard; the members are reached anew,
  /// and no thread of this runs until one is asked. Throws an Error with nothing changed.
  virtual void begin_anew() = 0;
};

}  // namespace dlock
