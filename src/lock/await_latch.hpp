#pragma once

#include <optional>

#include "lock/latch.hpp"
#include "lock/outage.hpp"

namespace dlock {

/// Told by await_latch() how the wait goes; made by the command.
class LatchListener : public ServerListener {
 public:
  /// When the waiting begins.
  virtual void waiting(const LatchState& state) = 0;
  /// At each further answer.
  virtual void still_waiting(const LatchState&) {}
};

/// How the waiting at a latch ended.
struct LatchWait {
  enum class End {
    open,
    timed_out,
    gone,         ///< there is no such latch, or there is none any more
    interrupted,  ///< the interrupting fd became readable
  };
  End end = End::open;
  LatchState state;      ///< as last seen; of `open` and `timed_out`
  bool reached = false;  ///< the server has answered
};

/// Waits until the latch is open, for `wait` at most (nothing: as long as it is there; zero: looks
/// once). A server that goes away meanwhile is tried again for as long as we may wait, and so is
/// one that was never reached if `wait` is given; else that is Error{unavailable}. `reached`: it
/// has answered an earlier part of the same wait, which was interrupted. Leaves nothing behind.
LatchWait await_latch(Latches& latches, const LockKey& key, std::optional<milliseconds> wait,
                      int cancel_fd, LatchListener& listener, bool reached = false);

}  // namespace dlock
