#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lock/store.hpp"

namespace dlock {

/// The time that a server's wall clock showed at some moment between the two on this host's.
struct ClockReading {
  microseconds server{0};  ///< since the epoch
  Deadline sent{};
  Deadline received{};
};

/// The weight of a member's answers.
struct Standing {
  /// Its answers count once this has passed: until then a lease may last that it has forgotten.
  milliseconds quarantined_for{0};
  /// Names the server's process: two members of the same name are one server. Empty where no
  /// answer has come yet.
  std::string process;
  std::optional<ClockReading> clock{};  ///< the last one, if it has told any
};

/// One of several independent servers of which a majority decides: Store, FenceRegister, and
/// what a majority needs beside. Its acquire() is for a client that uses it alone.
///
/// renew(): where a hold's fence is smaller than the one that `terms` says it was granted with, and
/// no larger one was given out since, hold and server take that over; the answer has the fence that
/// the hold has then.
class Member : public Store, public FenceRegister {
 public:
  /// As acquire(); a new owner's fence is max(last + 1, `proposal` within a minute of the server's
  /// clock). A hold the token has already is answered with the fence it has.
  virtual Answer vote(const Claim& claim, const Ask& ask, Fence proposal,
                      const CallOptions& call_options) = 0;

  /// Records a hold that the majority keeps and this server has not: past the queue, but not
  /// beside another owner: there it is the next. Its fence is `fence`, also where it has the hold,
  /// and the server's last one at least that. Nothing if another is inside or the token was
  /// released.
  virtual std::optional<Grant> rejoin(const Claim& claim, Fence fence,
                                      const CallOptions& call_options) = 0;

  /// This process will not ask for the token here after all: its release need not fear that a
  /// request comes after it, as that of a token does which another process asked for.
  virtual void note_dropped(const LockKey& key, const Token& token) = 0;

  /// The holders of a key, before they are evicted: what else is stored of the key may be damaged.
  virtual std::vector<Holder> look_at_holders(const LockKey& key,
                                              const CallOptions& call_options) = 0;

  /// As evict(), in one request, of the holders that were seen here or at another member: it evicts
  /// those with their fences, so that a repeated request evicts no later holder. Answers with
  /// `seen` where the answer to a first copy was lost, which may have evicted them.
  virtual std::vector<Holder> evict_seen(const LockKey& key, const std::vector<Holder>& seen,
                                         const Who& by, const CallOptions& call_options) = 0;

  /// As of the last answer.
  virtual Standing standing() const = 0;
};

}  // namespace dlock
