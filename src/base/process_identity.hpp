#pragma once

#include <sys/types.h>

#include <cstdint>

#include "base/fd.hpp"

namespace dlock {

/// Identifies a process during one boot: a pid is not enough, because pids are reused.
struct ProcessId {
  pid_t pid = 0;              ///< 0: no process
  std::uint64_t started = 0;  ///< as in ProcessStat; 0: not known
  /// Inode of the pid namespace that `pid` belongs to; 0: not known, so the process cannot be
  /// checked.
  std::uint64_t pid_space = 0;
  bool operator==(const ProcessId&) const = default;
};

/// Whether a process or a group is alive, as far as this process can see.
enum class Life {
  alive,
  over,
  unknown,  ///< in another or an unknown pid namespace, or hidden by /proc
};

/// The calling process. Each thread asks the kernel once, and once more after a fork.
const ProcessId& own_process();

/// Process `pid` of this namespace as it is now; `started` is 0 if it has ended or is hidden.
ProcessId process_now(pid_t pid);

/// A zombie counts as over.
Life process_life(const ProcessId& process);

/// Returns an fd that is readable when the process ends; empty if it has ended or cannot be
/// watched.
Fd process_end(const ProcessId& process);

}  // namespace dlock
