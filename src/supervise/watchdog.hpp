#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <vector>

#include "base/clock.hpp"
#include "base/fd.hpp"

namespace dlock {

/// A second process for the case that dlock itself is stopped or stuck: it ensures that no process
/// of the child runs after it must be gone. If dlock is killed, the kernel kills only the child,
/// and the watchdog kills its descendants. The watchdog has its own session, so that signals to
/// dlock's job or terminal do not reach it, and keeps no descriptor of the caller.
class Watchdog {
 public:
  /// Forks; to be called in a process with one thread, before the child exists. No process of the
  /// child may run after `gone_by`; the watchdog kills them `kill_cost` earlier. `work` finds the
  /// child's processes when they are no longer below dlock. Throws Error{host_refused} if there can
  /// be no process.
  Watchdog(Deadline gone_by, milliseconds kill_cost, std::function<std::vector<pid_t>()> work);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// The address of `gone_by`, on BootClock. Each renewal moves it on, from any thread.
  std::atomic<BootClock::rep>& gone_by() { return shared_->gone_by; }
  /// If `child` ends by itself, its descendants may outlive the lease.
  void spare_rest_of(pid_t child) { shared_->leaves_rest = child; }
  /// From now on, and before spare_rest_of(), nothing is spared: dlock stops the child with all its
  /// descendants.
  void spare_nothing() { shared_->leaves_rest = 0; }
  /// Whether the watchdog had to kill because dlock was too late.
  bool has_killed() const { return shared_->has_killed; }
  /// Ends the watchdog, after the child has ended or dlock has stopped it.
  void dismiss();

 private:
  /// The memory that both processes share.
  struct Shared {
    std::atomic<BootClock::rep> gone_by;
    const milliseconds kill_cost;
    std::atomic<pid_t> leaves_rest{0};
    std::atomic<bool> has_killed{false};
  };
  class Guard;

  Shared* shared_;
  Fd pidfd_;
};

}  // namespace dlock
