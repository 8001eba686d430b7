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

/// The controlling terminal. The child is in dlock's process group, so it is in the foreground when
/// dlock is.
class Terminal {
 public:
  /// Notes the modes, if stdin and stdout are the terminal and dlock is in the foreground.
  Terminal();

  /// Whether there is a terminal; looks for it if stdin is none.
  bool exists();
  /// Whether dlock's process group is in the foreground.
  bool in_front() const;
  /// The modes as they were at the start, after a child that was stopped and may not have cleaned
  /// up; unless another process group has the terminal by now.
  void reset_modes() const;

 private:
  int fd() const { return opened_ ? opened_.get() : 0; }

  std::optional<termios> modes_;
  Fd opened_;
};

/// How a child ended: one of the three is set.
struct ChildEnd {
  std::optional<int> exit_code;
  std::optional<int> signal;
  /// errno of the exec that failed: no instruction of the command has run. ETIME where it was not
  /// tried, because it was too late.
  std::optional<int> exec_error;
};

/// The process that runs the command, direct child of dlock and unreaped until `reap`, so that its
/// number cannot come to mean another. As below any other program it is in dlock's process group,
/// and in the foreground of a terminal when dlock is. It dies with SIGKILL when the thread that
/// started it ends. Destroyed unreaped, it is killed.
class Child {
 public:
  /// The steps of the child until it executes the command, and the memory that they need.
  struct Beginning;

  Child(ProcessTree tree, Terminal terminal, pid_t pid, Fd channel,
        std::unique_ptr<Beginning> beginning);
  Child(Child&& other) noexcept;
  ~Child();

  pid_t pid() const { return pid_; }
  Deadline started_at() const { return started_at_; }

  /// Readable when it has ended: a pidfd.
  int fd() const { return pidfd_.get(); }
  /// To the child, and to all it has started that is in dlock's process group, as the child is at
  /// first, or in the one that the child has moved to. A signal that `own_group_has_it`, as the
  /// terminal sends it, goes to the latter only.
  void send(int signal, bool own_group_has_it = false) const;
  /// The signal that stopped it, told once for each stop.
  std::optional<int> stopped() const;
  bool ended() const;
  /// Nothing while it lives.
  std::optional<ChildEnd> reap();

  ProcessTree tree;
  Terminal terminal;

 private:
  std::optional<int> exec_error() const;

  pid_t pid_;
  Fd pidfd_;
  Fd channel_;
  std::unique_ptr<Beginning> beginning_;  ///< the child may still be at it
  Deadline started_at_;
  bool reaped_ = false;
};

/// Forks and executes; called from the main thread, which then stays. If `before_exec` is there,
/// the command's first instruction waits for it, and it may throw. Whether
/// the exec succeeded is told by ChildEnd. Error{host_refused} if there can be no new process.
Child start(const Program& program, Signals& signals,
            const std::function<void()>& before_exec = {});

}  // namespace dlock
