#pragma once

#include <sys/types.h>
#include <termios.h>

#include <functional>
#include <memory>
#include <optional>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "supervise/exec_image.hpp"
#include "supervise/process_tree.hpp"
#include "supervise/signals.hpp"

namespace dlock {

/// The controlling terminal. The child is in dlock's process group, so it is in the foreground if
/// and only if dlock is.
class Terminal {
 public:
  /// Saves the modes if stdin and stdout are the terminal and dlock is in the foreground.
  Terminal();

  /// Whether there is a terminal; opens it if stdin is not one.
  bool exists();
  /// Whether dlock's process group is in the foreground.
  bool in_front() const;
  /// Restores the modes from the start, because a child that was stopped may not have done so. It
  /// does nothing if another process group has the terminal now.
  void reset_modes() const;

 private:
  int fd() const { return opened_ ? opened_.get() : 0; }

  std::optional<termios> modes_;
  Fd opened_;
};

/// How a child ended: exactly one of the three is set.
struct ChildEnd {
  std::optional<int> exit_code;
  std::optional<int> signal;
  /// errno of the exec that failed: no instruction of the command has run. ETIME means that it was
  /// too late to start the command.
  std::optional<int> exec_error;
};

/// The process that runs the command. It is a direct child of dlock and stays unreaped until
/// reap(), so that its pid cannot be reused. Like the child of any program, it is in dlock's
/// process group, and in the foreground of a terminal when dlock is. It gets SIGKILL when the
/// thread that started it ends, or when this object is destroyed before reap().
class Child {
 public:
  /// All that the child needs until it executes the command.
  struct ExecData;

  Child(ProcessTree tree, Terminal terminal, pid_t pid, Fd channel,
        std::unique_ptr<ExecData> exec_data);
  Child(Child&&) noexcept;
  ~Child();

  pid_t pid() const { return pid_; }
  Deadline started_at() const { return started_at_; }

  /// A pidfd, readable when the child has ended.
  int fd() const { return pidfd_.get(); }
  /// Sends a signal to the child and to some of its descendants: those in dlock's process group,
  /// where the child starts, and those in the child's current group. If `own_group_has_it`, because
  /// the terminal has sent it there already, only processes outside dlock's group get it.
  void send(int signal, bool own_group_has_it = false);
  /// The signal that stopped the child; reported once for each stop.
  std::optional<int> stopped() const;
  bool ended() const;
  /// Returns nothing while the child lives.
  std::optional<ChildEnd> reap();

  ProcessTree tree;
  Terminal terminal;

 private:
  std::optional<int> exec_error() const;

  pid_t pid_;
  Fd pidfd_;
  Fd channel_;
  std::unique_ptr<ExecData> exec_data_;  ///< the child may still use it
  Deadline started_at_;
  bool reaped_ = false;
};

/// Forks and executes. The main thread must call it, and must not end before the child. If
/// `before_exec` is given, the command starts only after it has returned; it may throw. ChildEnd
/// says whether the exec succeeded. Throws Error{host_refused} if there can be no new process.
Child start(const Program& program, Signals& signals,
            const std::function<void()>& before_exec = {});

}  // namespace dlock
