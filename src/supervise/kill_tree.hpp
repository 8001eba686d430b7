#pragma once

#include <string>
#include <vector>

#include "supervise/child.hpp"
#include "supervise/process_tree.hpp"
#include "supervise/signals.hpp"

namespace dlock {

/// The last resort for processes that dlock may not signal (a command that became root): write
/// access to a cgroup is enough to kill it. The first use creates `dlock-PID` below dlock's own
/// cgroup (v2), if that was delegated; it is removed at the end unless a process survived in it.
///
/// Write access does not mean delegation: where systemd runs, it owns the cgroups of root and of
/// the user, and marks those it delegates by an extended attribute (systemd.io/CGROUP_DELEGATION).
class KillCgroup {
 public:
  KillCgroup() = default;
  KillCgroup(const KillCgroup&) = delete;
  KillCgroup& operator=(const KillCgroup&) = delete;
  ~KillCgroup();

  /// Moves `processes` into the cgroup and kills all in it. Processes that cannot be moved are
  /// left.
  void kill(const std::vector<Descendant>& processes);

 private:
  void make();

  bool tried_ = false;
  std::string path_;  ///< empty: there is none
};

/// The folder of the calling process's cgroup: `self_cgroup` and `mount_info` are /proc/self/cgroup
/// and /proc/self/mountinfo (cgroups(7), proc(5)). Empty if no mounted cgroup v2 shows it.
std::string own_cgroup_folder(const std::string& self_cgroup, const std::string& mount_info);

/// Kills the child with all its descendants, and waits until none is left, for at most a few
/// seconds. supervise() calls it after the grace; returns the processes that could not be killed.
std::vector<Survivor> kill_tree(Child& child, Signals& signals);

}  // namespace dlock
