#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "base/process_identity.hpp"
#include "supervise/signals.hpp"

namespace dlock {

/// A process found in a tree, with its parent and its start time when it was found.
struct Descendant {
  pid_t pid;
  pid_t parent;
  std::uint64_t started;  ///< as in ProcessStat; 0: /proc hides it
};

/// A process that SIGKILL did not end.
struct Survivor {
  pid_t pid;         ///< 0: any processes that /proc does not show
  pid_t group;       ///< 0: /proc hides it
  std::string name;  ///< the name of its program, any bytes; empty: hidden
  std::string why;   ///< for example "owned by root"; empty: unknown
};

/// Calls `sweep` until it returns true, every few milliseconds and when `wake_fd` (-1: none) is
/// readable. Returns false after a few seconds. Meanwhile this process has a higher priority, if
/// permitted (root): processes that never stop forking would leave it no processor time.
bool sweep_until_gone(int wake_fd, const std::function<bool(bool first)>& sweep);

/// Processes that are signalled and killed together, whatever session or group they are in. The
/// attach daemons of `acquire --attach` are not part of any tree.
class ProcessTree {
 public:
  using Predicate = std::function<bool(pid_t)>;

  /// All descendants of this process except its present children. This process becomes the reaper
  /// of their orphans (PR_SET_CHILD_SUBREAPER), so that all living ones are below it in /proc. Call
  /// this before the child is forked.
  ProcessTree();
  /// The tree of a dlock that is another process and has `preexisting_children`.
  ProcessTree(pid_t dlock, std::set<pid_t> preexisting_children);
  /// `script` and its descendants, which may have any reaper: the tree remembers those that got a
  /// signal, and keeps them when their parent ends.
  explicit ProcessTree(const ProcessId& script);
  ProcessTree(ProcessTree&&) = default;
  ProcessTree& operator=(ProcessTree&&) = default;

  /// All members, parents before their children, including zombies. all() calls `visit` for each
  /// before it looks up the children. A process that is forked meanwhile may be missed.
  std::vector<Descendant> all(const std::function<void(const Descendant&)>& visit =
                                  [](const Descendant&) {}) const;

  /// Sends `signal` to all members that `hears` accepts, each through a pidfd that was checked to
  /// be the process found.
  void signal(
      int signal, const Predicate& hears = [](pid_t) { return true; });

  /// One sweep of a kill: SIGKILL to all members. One sweep ends most trees. A further one stops
  /// all first, as they may fork faster than dlock lists them.
  void kill_once(bool first);

  // For a script:

  /// Whether a process other than the script got the last signal.
  bool has_descendants() const { return known_.size() > 1; }
  /// Waits until the processes that got the last signal have ended.
  void await_end(Deadline until) const;

  // For the dlock that is the reaper of the tree, where `child` is its direct child:

  /// Kills `child` and all members, and waits until none is left, for at most a few seconds.
  /// `child_end` is a pidfd of the child. Returns the processes that could not be killed.
  std::vector<Survivor> kill(pid_t child, int child_end, Signals& signals);

  /// Reaps some adopted processes that have ended, while `child` runs. True if there may be more:
  /// they may come as fast as they are reaped.
  bool reap_adopted(pid_t child);

  /// Whether dlock has other children of the tree than `child`. If `nobody`, and `child` has ended
  /// too, no process of the tree is alive, because orphans become our children. Reaps all that have
  /// ended, except `child`, which keeps its pid.
  enum class Beside {
    nobody,
    somebody,  ///< also if /proc does not show it; ask again after SIGCHLD
    unclear,   ///< processes come and end too fast: ask again
  };
  Beside beside(pid_t child);

 private:
  /// Sends SIGSTOP until no new process is found. Then no process forks any more, except those that
  /// dlock may not signal. Gives up after a tenth of a second.
  void freeze() const;
  std::vector<Survivor> survivors() const;
  bool reap(pid_t pid);

  pid_t root_ = 0;  ///< all processes below it are members; 0: this is the tree of a script
  std::set<pid_t> preexisting_children_;
  std::vector<Descendant> known_;
  std::vector<Fd> reserved_fds_;  ///< for reading /proc when no others are left
};

}  // namespace dlock
