#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/process_identity.hpp"
#include "lock/claim.hpp"

namespace dlock {

/// The processes that do the work under a lock: those that started with the lock's owner, or an
/// owner below it, as DLOCK_OWNER. If the calling process may not read a process's environment
/// (below sudo), the process counts if it is in the command's process group. Otherwise the group
/// does not count, because the script around dlock is in it, too.
struct Work {
  Owner owner;
  ProcessId leader;         ///< the leader of the command's process group
  std::uint64_t since = 0;  ///< clock ticks since boot: older processes are not part of it
};

/// Whether process `pid` started with `owner`, or one below it, as DLOCK_OWNER.
bool works_for(pid_t pid, const Owner& owner);

/// Whether a process of the work runs, other than the calling process; a zombie does not. Returns
/// alive if processes come and go too fast to be sure: ask again.
Life work_life(const Work& work);

/// The running processes of the work other than the calling process, as far as /proc shows them.
std::vector<pid_t> running_processes(const Work& work);

/// File descriptors that become readable when a process ends, for up to `most` running processes.
/// Look again when one becomes readable.
std::vector<Fd> work_ends(const Work& work, std::size_t most);

}  // namespace dlock
