#pragma once

#include <csignal>
#include <optional>

#include "base/wait.hpp"

namespace dlock {

/// The signals sent to dlock, as events on a fd. A command creates this object before any thread
/// exists: from then on the signals are blocked in every thread and interrupt nothing.
///
/// Until hear_all() the fd reports the signals that by default end or stop a process (HUP, TERM,
/// real-time signals), except those of faults. A signal that was ignored on entry (nohup, a
/// background job of a script) stays ignored and is never reported. SIGPIPE and SIGXFSZ are blocked
/// too: writes then fail with EPIPE or EFBIG.
class Signals {
 public:
  Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  // The destructor restores nothing: a signal that comes while dlock exits must not change its exit
  // code.

  struct Event {
    int number;
    bool from_terminal;  ///< such as ^C, ^\, ^Z: sent to the whole foreground group
  };

  /// Readable while there is an event to take.
  int fd() const { return fd_.get(); }
  std::optional<Event> take();

  /// Adds WINCH, CONT, URG and CHLD to the signals that the fd reports. Call it before a child is
  /// forked.
  void hear_all();

  /// For the child between fork and exec: restores mask and dispositions as they were on entry. It
  /// is async-signal-safe and does not use errno.
  void restore_in_child() const;

 private:
  sigset_t heard_{};
  sigset_t mask_on_entry_{};
  struct sigaction chld_on_entry_ {};
  struct sigaction urg_on_entry_ {};
  Fd fd_;
};

/// Whether `signal` ends a dlock that has no child yet.
bool ends_waiting(int signal);

enum class Stop { myself, whole_job };

/// Stops this process, or its whole process group, as `signal` (TSTP, TTIN, TTOU) does by default.
/// Returns true after it was continued. Returns false at once if nobody could continue it: the
/// signal is ignored, or the process group is orphaned. Needs a Signals.
bool stop_by(int signal, Stop what);

/// Dies of `signal` like the child, but without a core dump: only the child's is useful.
[[noreturn]] void die_of(int signal);

}  // namespace dlock
