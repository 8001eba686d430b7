#pragma once

#include <sys/types.h>

#include <set>
#include <vector>

namespace dlock {

/// Everything the child has started, however far it moved away: dlock is made the reaper of its
/// orphans (PR_SET_CHILD_SUBREAPER), so whatever lives of them stands below dlock in /proc.
/// Processes that dlock already had for children when it was executed are not part of it.
class ProcessTree {
 public:
  /// Before the child is forked.
  ProcessTree();
  ProcessTree(ProcessTree&&) = default;

  /// Sends `signal` to all of it that is not in process group `except_group`, each process through
  /// a pidfd that was checked to be the one found.
  void signal(int signal, pid_t except_group) const;

  /// Reaps what was adopted and has ended, while `child` runs.
  void reap_adopted(pid_t child);

  /// The same after `child` may have ended, without ever reaping it: its number, which is its
  /// group's, stays taken. Returns who is left right below dlock, `child` not counted. If nobody
  /// is and `child` has ended, then nothing of the tree is alive, for orphans come up to us.
  std::vector<pid_t> reap_beside(pid_t child);

 private:
  bool reap(pid_t pid);

  std::set<pid_t> strangers_;
};

}  // namespace dlock
