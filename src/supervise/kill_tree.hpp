#pragma once

#include <string>
#include <vector>

#include "supervise/child.hpp"
#include "supervise/process_tree.hpp"
#include "supervise/signals.hpp"

namespace dlock {

/// The last resort against what dlock may not signal (a command that became root): a cgroup is
/// killed by whoever may write there, asking nobody else. `dlock-PID` is made below dlock's own
/// cgroup (v2) the first time it is needed, if that cgroup was delegated, and removed at the end
/// unless somebody survived in it.
///
/// Writable alone is not delegated: where systemd runs it owns the cgroups, root's and the user's,
/// and marks those it leaves to others by an extended attribute (systemd.io/CGROUP_DELEGATION).
class KillCgroup {
 public:
  KillCgroup() = default;
  KillCgroup(const KillCgroup&) = delete;
  KillCgroup& operator=(const KillCgroup&) = delete;
  ~KillCgroup();

  /// Moves `processes` in and kills all that is in it. What cannot be moved stays as it was.
  void kill(const std::vector<Descendant>& processes);

 private:
  void make();

  bool tried_ = false;
  std::string path_;  ///< empty: none
};

/// The folder of the calling process's cgroup: `self_cgroup` and `mount_info` are /proc/self/cgroup
/// and /proc/self/mountinfo (cgroups(7), proc(5)). Empty if no cgroup v2 is mounted that shows it.
std::string own_cgroup_folder(const std::string& self_cgroup, const std::string& mount_info);

/// Kills the child with all it started, and waits until nothing of it is left, for some seconds at
/// most. Called by supervise() when the grace is over; returns what could not be killed.
std::vector<Survivor> kill_tree(Child& child, Signals& signals);

}  // namespace dlock
