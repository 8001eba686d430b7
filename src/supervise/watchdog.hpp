#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <vector>

#include "base/clock.hpp"
#include "base/fd.hpp"

namespace dlock {

/// A second process for the case that dlock itself is stopped or stuck: it kills the child's
/// processes before dlock's leases may expire. If dlock is killed, the kernel kills only the child,
/// and the watchdog kills its descendants. The watchdog has its own session, so that signals to
/// dlock's job or terminal do not reach it, and keeps no descriptor of the caller.
class Watchdog {
 public:
  /// Forks; to be called in a process with one thread, before the child exists. No process of the
  /// child may run after `safe_until`; the watchdog kills them `kill_cost` earlier. `work` finds
  /// the child's processes when they are no longer below dlock. Throws Error{host_refused} if the
  /// watchdog cannot be started.
  Watchdog(Deadline safe_until, milliseconds kill_cost, std::function<std::vector<pid_t>()> work);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// The end of the leases, on BootClock; each renewal moves it on, from any thread.
  std::atomic<BootClock::rep>& safe_until() { return shared_->safe_until; }
  /// If `child` ends by itself, its descendants may outlive the lease. 0, as at the start: no
  /// process may, because dlock stops the child with all its descendants.
  void leave_descendants_of(pid_t child) { shared_->left_by = child; }
  /// Whether the watchdog had to kill because dlock was too late.
  bool has_killed() const { return shared_->has_killed; }
  /// Ends the watchdog, after the child has ended or dlock has stopped it.
  void dismiss();

 private:
  /// The memory that both processes share.
  struct Shared {
    std::atomic<BootClock::rep> safe_until;
    const milliseconds kill_cost;
    std::atomic<pid_t> left_by{0};
    std::atomic<bool> has_killed{false};
  };
  class WatchdogProcess;

  Shared* shared_;
  Fd pidfd_;
};

}  // namespace dlock
