#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.hpp"

namespace dlock {

/// The command that a child executes. The child finds and runs it like execvp(3): it searches PATH,
/// and runs a script without `#!` by /bin/sh.
struct Program {
  std::vector<std::string> argv;
  /// Changes to dlock's own environment; a variable without a value is removed.
  std::vector<std::pair<std::string, std::optional<std::string>>> environment;
  /// A descriptor that dlock has inherited but the child must not (--status-fd); -1: none.
  int hidden_fd = -1;
  /// After this time the child no longer executes the command. It checks that last, because the
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

}  // namespace dlock
