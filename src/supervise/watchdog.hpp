#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <vector>

#include "base/clock.hpp"
#include "base/fd.hpp"

namespace dlock {

/// A second process that does what dlock cannot do while it is itself stopped or stuck: nothing of
/// the child runs after the moment when it must be gone. If dlock is killed, the kernel
/// ends the child only, and the watchdog what the child has started. It has a session of its own,
/// so that whatever is done to dlock's job or terminal does not reach it, and keeps no fd of the
/// caller.
class Watchdog {
 public:
  /// Forks: called from a process of one thread, before the child exists. Nothing of the child may
  /// run after `gone_by`, and `kill_cost` before that it is killed. `work` finds the processes of
  /// the child where dlock's children are no longer below it. Throws Error{host_refused} if there
  /// can be no process.
  Watchdog(Deadline gone_by, milliseconds kill_cost, std::function<std::vector<pid_t>()> work);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Where `gone_by` is read, on BootClock; whoever renews moves it on, from any thread.
  std::atomic<BootClock::rep>& gone_by() { return shared_->gone_by; }
  /// If the child, this process, ends by itself, what it started may outlive the lease.
  void spare_rest_of(pid_t child) { shared_->leaves_rest = child; }
  /// From now on, and before spare_rest_of(), nothing is spared: dlock stops the child with all
  /// that it started.
  void spare_nothing() { shared_->leaves_rest = 0; }
  /// Whether it had to do what dlock was too late for.
  bool has_killed() const { return shared_->has_killed; }
  /// The child has ended, or was stopped, by dlock itself: ends the watchdog.
  void dismiss();

 private:
  /// In memory that both processes see.
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
