#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/process.hpp"

namespace dlock {

/// The processes that do the work under a lock: those of the process group of COMMAND.
struct Work {
  ProcessId leader;         ///< of its process group
  std::uint64_t since = 0;  ///< clock ticks since boot: older members of the group are none of it
};

/// Whether the work's process group still has a member that runs, other than the calling process
/// and those that are older than the work. A zombie does not, and a leader's pid that is another
/// process now proves that the group has gone: Linux gives no pid away that still names a group.
/// Alive where members come and go too fast to tell: ask again.
Life group_life(const Work& work);

/// Readable when the process ends, for up to `most` running members of the work's group other than
/// the calling process; empty where /proc shows none, and of no group (0). Look again when one
/// becomes readable.
std::vector<Fd> member_ends(const Work& work, std::size_t most);

}  // namespace dlock
