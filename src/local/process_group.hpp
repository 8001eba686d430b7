#pragma once

#include <sys/types.h>

#include <vector>

#include "base/process.hpp"

namespace dlock {

/// Whether a process group led by `leader` still has a member that runs, other than the calling
/// process. A zombie does not, and a leader's pid that is another process now proves that the group
/// has gone: Linux gives no pid away that still names a group.
Life group_life(const ProcessId& leader);

/// Readable when the process ends, for up to `most` running members of a group other than the
/// calling process; empty where /proc shows none, and of no group (0). Look again when one becomes
/// readable.
std::vector<Fd> member_ends(pid_t group, std::size_t most);

}  // namespace dlock
