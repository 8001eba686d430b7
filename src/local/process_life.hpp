#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/fd.hpp"

namespace dlock {

/// A process as those of the same boot can recognise it: a pid alone is used again. The boot is
/// recorded once a file (KeyFile), not here.
struct ProcessId {
  pid_t pid = 0;                ///< 0: nobody
  std::uint64_t started = 0;    ///< clock ticks since boot; 0: /proc did not say
  std::uint64_t pid_space = 0;  ///< inode of the pid namespace `pid` counts in
  bool operator==(const ProcessId&) const = default;
};

/// What can be said from here about a process or a group.
enum class Life {
  alive,
  over,
  unknown,  ///< another pid namespace, or /proc hides it
};

/// The calling process. Asked of the kernel once a process; a forked child asks anew.
const ProcessId& own_process();

/// Process `pid` of this namespace as it is now; `started` is 0 if it has gone or is hidden.
ProcessId process_now(pid_t pid);

/// Whether the process runs. A zombie does not.
Life process_life(const ProcessId& process);

/// Whether a process group led by `leader` still has a member that runs. A zombie does not, and a
/// leader's pid that is another process now proves that the group has gone: Linux gives no pid
/// away that still names a group.
Life group_life(const ProcessId& leader);

/// Readable when the process ends; empty if that has happened or cannot be watched.
Fd process_end(const ProcessId& process);

/// The same for up to `most` running members of a group, empty where /proc shows none. One that
/// ends says: look again.
std::vector<Fd> member_ends(pid_t group, std::size_t most);

/// Identifies this boot of the machine: a hash of the kernel's boot id; 0 where /proc has none.
std::uint64_t boot_hash();

}  // namespace dlock
