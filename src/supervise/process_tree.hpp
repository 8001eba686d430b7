#pragma once

#include <sys/types.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/fd.hpp"

namespace dlock {

/// A process found below another, and its parent at that time.
struct Descendant {
  pid_t pid;
  pid_t parent;
};

/// All living processes below `root`, in any session, parents before their children, without the
/// `preexisting_children` and their descendants. `visit` is called for each before its children are
/// looked up. A process that is forked meanwhile may be missed.
std::vector<Descendant> descendants_of(
    pid_t root, const std::set<pid_t>& preexisting_children = {},
    const std::function<void(const Descendant&)>& visit = [](const Descendant&) {});

/// Sends a signal through a pidfd, which names the process that has the pid when it is opened. It
/// is the process found if its parent is the same, or one of `others`, which adopt orphans. False
/// if it exists but may not be signalled.
bool send(const Descendant& found, int signal, const std::set<pid_t>& others);

/// Raises the priority of this process while it exists, if permitted (root): a family that never
/// stops forking would take the processors from the process that kills it.
class Hurry {
 public:
  Hurry();
  ~Hurry();
  Hurry(const Hurry&) = delete;
  Hurry& operator=(const Hurry&) = delete;

 private:
  int nice_before_;
};

/// A process that SIGKILL did not end.
struct Survivor {
  pid_t pid;         ///< 0: any processes that /proc does not show
  pid_t group;       ///< 0: /proc hides it
  std::string name;  ///< the name of its program, any bytes; empty: hidden
  std::string why;   ///< for example "owned by root"; empty: unknown
};

/// All descendants of the child, wherever they moved. dlock becomes the reaper of their orphans
/// (PR_SET_CHILD_SUBREAPER), so that all living ones are below dlock in /proc. Children that dlock
/// had when it was executed are not part of the tree, nor are the attach daemons of `acquire
/// --attach`.
class ProcessTree {
 public:
  /// To be called before the child is forked.
  ProcessTree();
  /// The tree of a dlock that is another process, and has `preexisting_children`. This process can
  /// signal the members of that tree, but not reap them.
  ProcessTree(pid_t dlock, std::set<pid_t> preexisting_children);
  ProcessTree(ProcessTree&&) = default;

  /// Sends `signal` to all members that `hears` accepts, each through a pidfd that was checked to
  /// be the process found. Returns those that may not be signalled.
  std::vector<Descendant> signal(
      int signal, const std::function<bool(pid_t)>& hears = [](pid_t) { return true; }) const;

  /// Sends SIGSTOP until no new process is found. Then no process forks any more, except those that
  /// may not be signalled. Gives up after a tenth of a second.
  void freeze() const;

  /// All that are left, including the child and zombies.
  std::vector<Descendant> all() const;

  /// The members that SIGKILL did not end.
  std::vector<Survivor> survivors() const;

  /// Reaps some adopted processes that have ended, while `child` runs. True if there may be more:
  /// they may come as fast as they are reaped.
  bool reap_adopted(pid_t child);

  /// Frees descriptors for reading /proc if no others are left. To be called before the tree is
  /// killed.
  void release_spares() { spares_.clear(); }

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
  bool reap(pid_t pid);

  pid_t root_;
  std::set<pid_t> preexisting_children_;
  std::vector<Fd> spares_;
};

}  // namespace dlock
