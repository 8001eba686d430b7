#pragma once

#include <optional>

#include "lock/latch.hpp"
#include "lock/outage.hpp"

namespace dlock {

/// await_latch() reports to it how the wait goes. The command implements it.
class LatchListener : public ServerListener {
 public:
  /// The wait begins.
  virtual void waiting(const LatchState& state) = 0;
  /// Called for each further answer.
  virtual void still_waiting(const LatchState&) {}
};

/// The result of await_latch().
struct LatchWait {
  enum class End {
    open,
    timed_out,
    gone,         ///< the latch never existed or has expired
    interrupted,  ///< the interrupting fd became readable
  };
  End end = End::open;
  LatchState state;      ///< as last seen; valid for `open` and `timed_out`
  bool reached = false;  ///< the server has answered
};

/// Waits until the latch is open, for at most `wait` (empty: as long as the latch exists; zero:
/// looks once). If the server becomes unreachable, this function retries until the wait ends. It
/// also does so for a server that it has never reached, but only if `wait` is given; otherwise it
/// throws Error{unavailable}. `reached`: the server answered an earlier part of the same wait,
/// which was interrupted. The waiter leaves no state on the server.
LatchWait await_latch(Latches& latches, const LockKey& key, std::optional<milliseconds> wait,
                      int cancel_fd, LatchListener& listener, bool reached = false);

}  // namespace dlock
