#pragma once

#include <optional>
#include <string>

#include "lock/store.hpp"

namespace dlock {

/// The time on a server's wall clock at some moment between `sent` and `received` on this host.
struct ClockReading {
  microseconds server{0};  ///< since the epoch
  Deadline sent{};
  Deadline received{};
};

/// How far a member's answers can be trusted.
struct Standing {
  /// Its answers count after this time: until then a lease that it has forgotten may still be
  /// valid.
  milliseconds quarantined_for{0};
  /// Names the server's process: two members with the same name are one server. It is empty before
  /// the first answer.
  std::string process;
  std::optional<ClockReading> clock{};  ///< the last reading, if the server has sent any
};

/// One of several independent servers that decide by majority: a Store and FenceRegister with
/// additional operations for a quorum.
///
/// renew(): the hold and the server adopt the fence `options.granted`, unless the hold's fence is
/// larger or the server has given out a larger one since. The answer has the resulting fence.
class Member : public Store, public FenceRegister {
 public:
  /// Records a hold that the majority has and this server lacks. The claim skips the queue; if
  /// another owner holds the key here, the claim becomes the first waiter. The hold gets the fence
  /// `fence`, also if it exists already, and the server's last fence becomes at least that. Returns
  /// nothing if another owner holds the key or the token was released.
  virtual std::optional<Grant> rejoin(const Claim& claim, Fence fence,
                                      const CallOptions& call_options) = 0;

  /// The standing in the last answer.
  virtual Standing standing() const = 0;
};

}  // namespace dlock
