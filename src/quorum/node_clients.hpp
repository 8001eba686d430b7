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

/// Requests to a member. Each is carried out by a call of Member.
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
struct LatchMending {
  LockKey key;
  LatchTerms terms;
  std::optional<Displaced> displaced;
  std::vector<ArrivalId> arrived;
};
struct Arrival {
  LockKey key;
  ArrivalId id;
};
struct LatchReading {
  LockKey key;
  std::size_t known = 0;
  bool listen = false;
};
using NodeRequest = std::variant<Vote, Renewal, Rejoining, Release, HolderQuery, Eviction,
                                 Inspection, FenceRecord, LatchMending, Arrival, LatchReading>;

/// The response to a request: an Answer to a Vote, a Renewed to Renewal and Rejoining, an optional
/// LatchPart to the requests about latches. A Wake comes unasked, after a waiting Vote was refused
/// or a LatchReading that listens was answered; an Error in its place means that the subscription
/// broke.
using Response = std::variant<Answer, Renewed, ReleaseResult, std::vector<Holder>,
                              std::vector<KeyState>, Fence, std::optional<LatchPart>, Wake, Error>;

struct NodeReply {
  std::size_t member = 0;
  std::uint64_t request = 0;  ///< numbered by ask(); 0: unasked
  Standing standing;
  Response response;
};

/// Sends requests to the members of a quorum without waiting for the answers. Used by one thread at
/// a time.
class NodeClients {
 public:
  virtual ~NodeClients() = default;

  virtual std::size_t size() const = 0;
  virtual std::string name(std::size_t member) const = 0;

  /// Sends `request` and returns its number. A member carries out its requests in this order. An
  /// answer that the member still owes is dropped, and that request is done or not. If no answer
  /// comes by `deadline`, hear() returns Error{unavailable}.
  virtual std::uint64_t ask(std::size_t member, NodeRequest request, Deadline deadline) = 0;

  /// Whether all releases for `member` have been sent to its server, answered or not.
  virtual bool has_sent_releases(std::size_t member) const = 0;

  /// The next answer of any member, or nothing at `until`. Throws Error{interrupted}.
  virtual std::optional<NodeReply> hear(Deadline until, int cancel_fd) = 0;

  /// Prepares for a fork: pending requests are done or not, and their answers are dropped. The
  /// members are connected anew, and no thread of this object runs until one is asked. Throws an
  /// Error with nothing changed.
  virtual void begin_anew() = 0;
};

}  // namespace dlock
