#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace dlock {

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

}  // namespace dlock
