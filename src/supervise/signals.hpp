#pragma once

#include <csignal>
#include <optional>
#include <string>

#include "base/wait.hpp"

namespace dlock {

/// The signals sent to dlock, as events on a fd. Made once, by main, before any thread exists:
/// from then on they are blocked in every thread and interrupt nothing.
///
/// Until `hear_all()` the fd tells of those that by default end or stop a process, be it HUP, TERM
/// or a real-time signal, but for those of faults. What was ignored on entry (nohup, a background
/// job of a script) stays ignored and is never told. SIGPIPE and SIGXFSZ are blocked too: writing
/// fails with EPIPE, EFBIG.
class Signals {
 public:
  Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  // Nothing is given back at the end: a signal that comes while dlock is leaving must not change
  // the exit code it leaves with.

  struct Event {
    int number;
    bool from_terminal;  ///< such as ^C, ^\, ^Z: sent to the whole foreground group
  };

  /// Readable while there is something to take.
  int fd() const { return fd_.get(); }
  std::optional<Event> take();

  /// Called when a child is about to exist: from here on also WINCH, CONT, URG and CHLD.
  void hear_all();

  /// Async-signal-safe and without errno, for the child between fork and exec: mask and
  /// dispositions as found on entry.
  void restore_in_child() const;

 private:
  sigset_t heard_{};
  sigset_t mask_on_entry_{};
  struct sigaction chld_on_entry_ {};
  struct sigaction urg_on_entry_ {};
  Fd fd_;
};

/// While it lives the kernel reaps the children that end (SA_NOCLDWAIT), without a zombie; those
/// that have ended before stay.
class KernelReaps {
 public:
  KernelReaps();
  ~KernelReaps();
  KernelReaps(const KernelReaps&) = delete;
  KernelReaps& operator=(const KernelReaps&) = delete;

 private:
  struct sigaction before_ {};
};

/// `TERM`; the number of one that has no name.
std::string signal_name(int signal);

/// Whether `signal` ends a dlock that has no child yet.
bool ends_waiting(int signal);

enum class Stop { myself, whole_job };

/// Stops this process, or its whole process group, as `signal` (TSTP, TTIN, TTOU) by default
/// would. True once continued; false, at once, where nobody could continue it: ignored, or an
/// orphaned process group. Needs a Signals.
bool stop_by(int signal, Stop what);

/// Dies of `signal`, as the child did, but leaves no core dump: the child's is the one that tells.
[[noreturn]] void die_of(int signal);

}  // namespace dlock
