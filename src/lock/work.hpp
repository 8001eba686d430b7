#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/process.hpp"
#include "lock/claim.hpp"

namespace dlock {

/// The processes that do the work under a lock: those that began with its owner, or one below it,
/// as DLOCK_OWNER, and those of the command's process group whose environment the calling process
/// may not read (below sudo). A process group without a mark proves nothing: it is that of the
/// script around dlock, too.
struct Work {
  Owner owner;
  ProcessId leader;         ///< of the command's process group
  std::uint64_t since = 0;  ///< clock ticks since boot: older processes are none of it
};

/// Whether process `pid` began with `owner`, or one below it, as DLOCK_OWNER.
bool works_for(pid_t pid, const Owner& owner);

/// Whether a process of the work runs, other than the calling process; a zombie does not. Alive
/// where processes come and go too fast to tell: ask again.
Life work_life(const Work& work);

/// The running processes of the work other than the calling process, as far as /proc shows them.
std::vector<pid_t> running_processes(const Work& work);

/// Readable when the process ends, for up to `most` of the running processes. Look again when one
/// becomes readable.
std::vector<Fd> work_ends(const Work& work, std::size_t most);

}  // namespace dlock
