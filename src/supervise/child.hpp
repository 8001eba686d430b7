#pragma once

#include <sys/syscall.h>
#include <sys/types.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "supervise/process_tree.hpp"
#include "supervise/signals.hpp"

namespace dlock {

/// The command that a child executes. The child finds and runs it like execvp(3): it searches PATH,
/// and runs a script without `#!` by /bin/sh.
struct Program {
  std::vector<std::string> argv;
  /// Changes to dlock's own environment; a variable without a value is removed.
  std::vector<std::pair<std::string, std::optional<std::string>>> environment;
  /// A descriptor that dlock has inherited but the child must not (--status-fd); -1: none.
  int hidden_fd = -1;
  /// After this time the child no longer executes the command. It checks the time last, because the
  /// kernel may stop the process or the whole machine at any time before.
  Deadline start_before = never;
};

/// Whether raw_syscall() leaves errno unchanged on this processor.
#if defined(__LP64__) && (defined(__x86_64__) || defined(__aarch64__))
inline constexpr bool raw_syscall_spares_errno = true;
#else
inline constexpr bool raw_syscall_spares_errno = false;
#endif

/// A system call that returns -errno on failure, as the kernel does (syscall(2), "Architecture
/// calling conventions"). It is for a child that shares its parent's memory, and therefore its
/// errno.
inline long raw_syscall(long number, long first = 0, long second = 0, long third = 0) {
#if defined(__LP64__) && defined(__x86_64__)
  long result = number;
  asm volatile("syscall"
               : "+a"(result)
               : "D"(first), "S"(second), "d"(third)
               : "rcx", "r11", "memory");
  return result;
#elif defined(__LP64__) && defined(__aarch64__)
  register long result asm("x0") = first;
  register long x1 asm("x1") = second;
  register long x2 asm("x2") = third;
  register long x8 asm("x8") = number;
  asm volatile("svc #0" : "+r"(result) : "r"(x1), "r"(x2), "r"(x8) : "memory");
  return result;
#else
  const long result = syscall(number, first, second, third);
  return result < 0 ? -errno : result;
#endif
}

/// A Program in the form for execve(2), built before there is a child, because the child must not
/// allocate. It searches PATH and runs a script without `#!` by /bin/sh, like execvp(3).
class ExecImage {
 public:
  explicit ExecImage(const Program& program);
  ExecImage(const ExecImage&) = delete;
  ExecImage& operator=(const ExecImage&) = delete;

  /// For the child: returns only on failure, with the error that execvp(3) would store in errno. It
  /// leaves errno unchanged.
  int execute();

 private:
  int try_to_execute(const std::string& path);

  std::vector<std::string> arguments_;
  std::vector<std::string> additions_;  ///< additions to dlock's own environment
  std::vector<std::string> paths_;      ///< the possible paths of the program, in the order of PATH
  std::vector<const char*> argv_;
  std::vector<const char*> shell_argv_;  ///< /bin/sh, a path, the arguments
  std::vector<const char*> envp_;
};

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

  /// Forks and executes. The main thread must call it, and must not end before the child. If
  /// `before_exec` is given, the command starts only after it has returned; it may throw. ChildEnd
  /// says whether the exec succeeded. Throws Error{host_refused} if there can be no new process.
  Child(const Program& program, Signals& signals, const std::function<void()>& before_exec = {});
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
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
  Child(const Program& program, Signals& signals, bool gated);
  std::optional<int> exec_error() const;

  Fd channel_;
  std::unique_ptr<ExecData> exec_data_;  ///< the child may still use it
  pid_t pid_ = -1;
  Fd pidfd_;
  Deadline started_at_{};
  bool reaped_ = false;
};

}  // namespace dlock
