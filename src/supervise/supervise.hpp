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

/// What may oblige dlock to stop the child before its own end. Made by whoever knows the lease.
class StopSource {
 public:
  virtual ~StopSource() = default;
  /// Readable: ask lost().
  virtual int fd() const = 0;
  /// lost() is to be asked then at the latest; afterwards it has moved on.
  virtual Deadline look_by() const { return never; }
  /// Called when fd() is readable, or look_by() has come: true means stop now; false means it was
  /// nothing, and has left fd() unreadable. Must not block for long.
  virtual bool lost() const = 0;
  /// Nothing of the child may run after this. Moves later as renewals succeed; read anew on every
  /// wake, so it must be thread-safe and cheap.
  virtual Deadline must_be_gone_by() const = 0;
  /// Called when look_by() is asked no more: before the child is stopped, which may take a while,
  /// and once a loss was noticed that the child outlives.
  virtual void keep_by_itself() const {}
  /// What of the usual grace there is time for, now.
  virtual milliseconds grace(milliseconds usual) const { return usual; }
};

/// What it takes a machine to wake us, to find the tree, and to tear the processes down: so long
/// before nothing may run any more, SIGKILL is sent. Where there is time, there is some for a
/// machine with twenty busy processes a processor; under 20 ms even a quiet one is too slow.
constexpr milliseconds kill_cost(milliseconds ttl) {
  return std::clamp(ttl / 10, milliseconds(20), milliseconds(500));
}

struct Terms {
  int stop_signal = SIGTERM;
  /// Between `stop_signal` and SIGKILL.
  milliseconds grace{0};
  milliseconds kill_cost = dlock::kill_cost(milliseconds(0));
  /// Counted from the child's start.
  std::optional<milliseconds> max_hold;
  /// Null: nothing can be lost.
  const StopSource* loss = nullptr;
  bool keep_running_on_loss = false;
  /// The end is that of all the child has started, not of the child alone.
  bool wait_tree = false;
  /// Called once, when a loss is noticed and the child runs on. A loss that stops it is told by
  /// the Ending alone: a message that blocks (a full pipe) must not delay the kill.
  std::function<void()> on_loss;
  /// If the watchdog has begun to kill, the child's end counts as a loss, and what it started is
  /// killed here, too. Null: there is none.
  Watchdog* watchdog = nullptr;
  /// Called before dlock stops with its child (^Z): renew, for nobody will meanwhile.
  std::function<void()> before_stop;
};

struct Ending {
  enum class Reason { exited, signalled, not_started, lost, max_hold };
  Reason why;
  /// Beside `lost` and `max_hold`: how it ended after being stopped.
  ChildEnd child;
  bool loss_noticed = false;
  /// What could not be killed; the lock must lapse then, not be released.
  std::vector<Survivor> survivors;
};

/// Waits for the child, passing signals on (to all that is left, once only its descendants are),
/// and stops it with all it started when the terms say so. Nothing of it is alive at
/// `must_be_gone_by`, as far as this machine runs dlock in time. A child that ends by itself leaves
/// what it started alone, but for `wait_tree`.
Ending supervise(Child& child, Signals& signals, const Terms& terms);

}  // namespace dlock
