#include "commands/deadlock.hpp"

#include <unistd.h>

#include <algorithm>
#include <vector>

#include "base/process.hpp"

namespace dlock {
namespace {

/// Process 1 started all others, and waits for none of them in particular.
std::vector<pid_t> ancestors() {
  constexpr std::size_t deepest = 100;
  std::vector<pid_t> pids;
  for (pid_t pid = getppid(); pid > 1 && pids.size() < deepest;) {
    pids.push_back(pid);
    const auto stat = stat_of(pid);
    pid = stat ? stat->parent : 0;
  }
  return pids;
}

}  // namespace

std::string deadlock_text(const Refusal& refusal) {
  if (refusal.why != Refusal::Reason::held) return "";
  const std::string host = this_process("", "").host;
  const auto above = ancestors();
  for (const Holder& holder : refusal.held_by) {
    const bool here = !holder.kept && holder.who.host == host;
    if (!here || std::find(above.begin(), above.end(), holder.who.pid) == above.end()) continue;
    return "; pid " + std::to_string(holder.who.pid) +
           " started this dlock, so this is a deadlock if it waits for it: release the lock first, "
           "or give this dlock the holder's DLOCK_OWNER";
  }
  return "";
}

}  // namespace dlock
