#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include "base/clock.hpp"
#include "supervise/child.hpp"
#include "supervise/signals.hpp"
#include "supervise/watchdog.hpp"

namespace dlock {

/// A reason to stop the child before it ends by itself. The owner of the lease implements it.
class StopSource {
 public:
  virtual ~StopSource() = default;
  /// Readable when look() must be called.
  virtual int fd() const = 0;
  /// The latest time for the next call of look(); each call moves it on.
  virtual Deadline look_by() const { return never; }
  enum class News {
    none,
    stop_asked,  ///< somebody asks the child to end; told once
    lost,        ///< stop the child now
  };
  /// The supervisor calls it when fd() is readable, or at look_by(). Unless there is a loss, fd()
  /// is unreadable again. Must not block for long.
  virtual News look() = 0;
  /// The supervisor will not look any more: it is about to stop the child, which may take a while,
  /// or it has noticed a loss and the child runs on.
  virtual void look_no_more() {}
  /// The time after which no process of the child may run; each renewal moves it on. Called on
  /// every wake-up, so it must be thread-safe and cheap.
  virtual Deadline safe_until() const = 0;
  /// How much of the usual grace fits into the remaining time.
  virtual milliseconds grace(milliseconds usual) const { return usual; }
};

/// How long before the deadline dlock sends SIGKILL: the time that a machine needs to wake us, to
/// find the tree, and to tear down the processes. A long ttl leaves enough for a machine with
/// twenty busy processes per processor; under 20 ms even a quiet machine is too slow.
constexpr milliseconds kill_cost(milliseconds ttl) {
  return std::clamp(ttl / 10, milliseconds(20), milliseconds(500));
}

/// The options of supervise().
struct SuperviseOptions {
  int stop_signal = SIGTERM;
  /// The time between `stop_signal` and SIGKILL.
  milliseconds grace{0};
  milliseconds kill_cost = dlock::kill_cost(milliseconds(0));
  /// The limit counts from the child's start.
  std::optional<milliseconds> max_hold;
  /// Null: nothing can be lost.
  StopSource* loss = nullptr;
  bool keep_running_on_loss = false;
  /// Whether to wait for all descendants of the child, not only for the child.
  bool wait_tree = false;
  /// Called once, when a loss is noticed and the child runs on. A loss that stops the child is
  /// reported only in the Ending: a message that blocks (a full pipe) must not delay the kill.
  std::function<void()> on_loss;
  /// Called once, when the child has got `stop_signal` because somebody asks it to end. It gets as
  /// long as it takes.
  std::function<void()> on_stop_asked;
  /// If the watchdog has begun to kill, the child's end counts as a loss, and supervise() kills its
  /// descendants, too. Null: no watchdog.
  Watchdog* watchdog = nullptr;
  /// Called before dlock stops with its child (^Z): it should renew, because a stopped dlock
  /// cannot.
  std::function<void()> before_stop;
};

struct Ending {
  enum class Reason {
    ended,  ///< the child ended by itself, or never started
    lost,
    max_hold,
  };
  Reason why;
  /// With `lost` and `max_hold`: how the child ended after it was stopped.
  ChildEnd child;
  bool loss_noticed = false;
  /// The processes that SIGKILL did not end; the lock must then expire instead of being released.
  std::vector<Survivor> survivors;
};

/// Waits for the child and passes signals on to it, or to its descendants once it has ended. Stops
/// it with all its descendants when the options require it. None of them is alive at `safe_until`,
/// if the machine runs dlock in time. When a child ends by itself, supervise() leaves its
/// descendants running, unless `wait_tree` is set.
Ending supervise(Child& child, Signals& signals, const SuperviseOptions& options);

}  // namespace dlock
