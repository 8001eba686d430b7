#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.hpp"
#include "lock/claim.hpp"
#include "lock/grant.hpp"
#include "lock/outage.hpp"
#include "lock/store.hpp"

namespace dlock {

/// Identifies a client that arrives: it counts once however often it arrives. It consists of
/// letters, digits and `._:@-`, like an owner's name.
struct ArrivalId {
  std::string text;
  auto operator<=>(const ArrivalId&) const = default;
};

/// An ID that no other client has.
ArrivalId new_arrival_id();

constexpr std::int64_t largest_latch = 1'000'000;

/// The options for opening a latch.
struct LatchOptions {
  std::int64_t count = 0;
  milliseconds ttl{0};
};

/// The count-down latches of an engine, which are separate from the locks of the same keys. One
/// thread at a time may use them. Callers may repeat every request.
class Latches {
 public:
  virtual ~Latches() = default;

  /// Creates the latch. An existing latch keeps its count, which is then that of the answer. A call
  /// with the same count may extend the expiry.
  virtual LatchState open_latch(const LockKey& key, const LatchOptions& options,
                                const CallOptions& call_options) = 0;

  /// Returns nothing if there is no such latch. A latch that is open stays unchanged.
  virtual std::optional<LatchState> arrive(const LockKey& key, const ArrivalId& id,
                                           const CallOptions& call_options) = 0;

  /// Returns nothing if there is no such latch. With `listen`, sleep_at_latch() wakes from now on
  /// at everything that may open the latch.
  virtual std::optional<LatchState> look_at_latch(const LockKey& key, bool listen,
                                                  const CallOptions& call_options) = 0;

  /// After a look that listens: sleeps until `until`, or until there is a reason to look again
  /// (`changed`). Throws Error{unavailable} if the notification channel broke: look again.
  virtual Wake::Reason sleep_at_latch(const LockKey& key, Deadline until, int cancel_fd) = 0;
};

/// The command implements this interface; await_latch() calls it to report how the wait goes.
class LatchListener : public ServerListener {
 public:
  /// The latch is not open yet, and the wait goes on; called for each answer.
  virtual void waiting(const LatchState& state) = 0;
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
