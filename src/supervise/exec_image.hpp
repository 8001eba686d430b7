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

/// The command that a child executes. The child finds and runs it as execvp(3) does: along PATH, a
/// script without `#!` by /bin/sh.
struct Program {
  std::vector<std::string> argv;
  /// Set on top of dlock's own environment; nothing: taken out of it.
  std::vector<std::pair<std::string, std::optional<std::string>>> environment;
  /// Inherited by dlock but not by the child (--status-fd); -1: none.
  int hidden_fd = -1;
  /// From then on the child does not execute it any more. The child looks at that last, as the
  /// kernel may stop this process or the whole machine for any time before.
  Deadline start_before = never;
};

/// Whether raw_syscall() leaves errno alone on this processor.
#if defined(__LP64__) && (defined(__x86_64__) || defined(__aarch64__))
inline constexpr bool raw_syscall_spares_errno = true;
#else
inline constexpr bool raw_syscall_spares_errno = false;
#endif

/// A system call that returns -errno where it fails, as the kernel does (syscall(2), "Architecture
/// calling conventions"). Called by a child that shares its parent's memory, and so its errno.
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

/// A Program as execve(2) wants it, made before there is a child: afterwards nothing may allocate.
/// It looks along PATH and gives a script without `#!` to /bin/sh, as execvp(3) does.
class ExecImage {
 public:
  explicit ExecImage(const Program& program);
  ExecImage(const ExecImage&) = delete;
  ExecImage& operator=(const ExecImage&) = delete;

  /// For the child: does not return unless it fails, with what execvp(3) would leave in errno,
  /// which stays as it was.
  int execute();

 private:
  int try_to_execute(const std::string& path);

  std::vector<std::string> arguments_;
  std::vector<std::string> additions_;  ///< to dlock's own environment
  std::vector<std::string> paths_;      ///< where the program may be, in the order of PATH
  std::vector<const char*> argv_;
  std::vector<const char*> shell_argv_;  ///< /bin/sh, a path, the arguments
  std::vector<const char*> envp_;
};

}  // namespace dlock
