#pragma once

#include <sys/types.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/fd.hpp"

namespace dlock {

/// A process found below another, and who its parent was then.
struct Descendant {
  pid_t pid;
  pid_t parent;
};

/// All that live below `root`, in whatever session, parents before their children; without
/// `preexisting_children` and what is below them. Each is shown to `visit` before its own children
/// are looked for. Whoever is forked meanwhile may be missed.
std::vector<Descendant> descendants_of(
    pid_t root, const std::set<pid_t>& preexisting_children = {},
    const std::function<void(const Descendant&)>& visit = [](const Descendant&) {});

/// Sends through a pidfd, which names the process that has the number at the moment of opening. It
/// is the one found if its parent is still the same, or one of `others`, to whom orphans fall.
/// False if it is there but not ours to signal.
bool send(const Descendant& found, int signal, const std::set<pid_t>& others);

/// While it lives this process runs before others, if it may (root): a family that forks on and on
/// takes the processors from whoever is to end it.
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
  pid_t pid;         ///< 0: whatever there is that /proc does not show
  pid_t group;       ///< 0: /proc hides it
  std::string name;  ///< of its program, any bytes; empty: hidden
  std::string why;   ///< "owned by root"; empty: nothing is known
};

/// Everything the child has started, however far it moved away: dlock is made the reaper of its
/// orphans (PR_SET_CHILD_SUBREAPER), so whatever lives of them stands below dlock in /proc.
/// Processes that dlock already had for children when it was executed are not part of it, nor are
/// those that `acquire --attach` has left behind.
class ProcessTree {
 public:
  /// Before the child is forked.
  ProcessTree();
  /// The same of a dlock that is another process, and has `preexisting_children`. Of the tree's
  /// members this one can signal, but reap none.
  ProcessTree(pid_t dlock, std::set<pid_t> preexisting_children);
  ProcessTree(ProcessTree&&) = default;

  /// Sends `signal` to all of it that `hears` admits, each process through a pidfd that was checked
  /// to be the one found. Returns those that are not ours to signal.
  std::vector<Descendant> signal(
      int signal, const std::function<bool(pid_t)>& hears = [](pid_t) { return true; }) const;

  /// Sends SIGSTOP until nobody is found who had not been sent it: then nobody forks any more, but
  /// for those who are not ours to signal. Gives up after a tenth of a second.
  void freeze() const;

  /// All that are left, the child and zombies included.
  std::vector<Descendant> all() const;

  /// The processes of it that SIGKILL did not end.
  std::vector<Survivor> survivors() const;

  /// Reaps some of what was adopted and has ended, while `child` runs. True if there may be more:
  /// they may come as fast as they are reaped.
  bool reap_adopted(pid_t child);

  /// Called before the tree is killed: descriptors to read /proc with where there are none left.
  void release_spares() { spares_.clear(); }

  /// Who is left right below dlock, beside `child`. If `nobody`, and `child` has ended too, then
  /// nothing of the tree is alive, for orphans come up to us. Reaps whoever has ended, but never
  /// `child`: its number stays taken.
  enum class Beside {
    nobody,
    somebody,  ///< or /proc does not tell; SIGCHLD tells when to ask again
    unclear,   ///< they come and end too fast to say: to be asked again
  };
  Beside beside(pid_t child);

 private:
  bool reap(pid_t pid);

  pid_t root_;
  std::set<pid_t> preexisting_children_;
  std::vector<Fd> spares_;
};

}  // namespace dlock
