#include "supervise/process_tree.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <utility>

#include "base/clock.hpp"
#include "base/process.hpp"
#include "base/wait.hpp"

namespace dlock {
namespace {

constexpr milliseconds longest_freeze{100};

/// How long to wait for killed processes. Freeing many gigabytes takes seconds; dlock reports a
/// process that is stuck in the kernel for longer.
constexpr std::chrono::seconds max_kill_time{5};

/// How often to look at the dying tree: dlock gets no signal for processes that are not its
/// children.
constexpr milliseconds sweep_interval{5};

/// How many processes to reap before dlock checks the deadlines again.
constexpr int most_reaped_at_once = 256;

constexpr int lowest_nice = -20;

/// A folder of /proc, a file in it, and a pidfd.
constexpr int most_fds_needed = 3;

/// The user of a process, as kill(2) checks it; empty if /proc hides it.
std::string owner_of(pid_t pid) {
  const std::string status = file_text("/proc/" + std::to_string(pid) + "/status");
  const auto line = status.find("\nUid:\t");
  if (line == std::string::npos) return "";
  const auto uid = std::strtoul(status.c_str() + line + 6, nullptr, 10);
  return uid == 0 ? "root" : "uid " + std::to_string(uid);
}

/// Whether `child` belongs to the command. An attach daemon becomes our child like any orphan, but
/// it belongs to the script whose locks it holds, and may itself wait for our end.
bool is_of_the_command(pid_t child) { return command_name(child) != keeper_name; }

bool is_reapable(pid_t child) {
  siginfo_t end{};
  waitid(P_PID, static_cast<id_t>(child), &end, WEXITED | WNOHANG | WNOWAIT);
  return end.si_pid != 0;
}

std::string why_it_lives(pid_t pid, char state) {
  if (kill(pid, 0) != 0 && errno == EPERM) {
    const std::string owner = owner_of(pid);
    return owner.empty() ? "another user's" : "owned by " + owner;
  }
  return state == 'D' ? "in uninterruptible sleep or frozen" : "";
}

/// Whether another process has the pid of `found` now. A process that /proc hides counts as the one
/// found: it belongs to another user, so the kernel refuses the signal.
bool is_another_now(const Descendant& found) {
  const auto now = stat_of(found.pid);
  return now && now->started != found.started;
}

/// Sends a signal through a pidfd, which names the process that has the pid when it is opened.
/// Returns false only if that process is the one found and dlock may not signal it.
bool signal_found(const Descendant& found, int signal) {
  const Fd handle = open_pidfd(found.pid);
  if (!handle) {
    // No descriptor is available. A child of our own keeps its pid until we reap it.
    const bool own = errno != ESRCH && found.parent == getpid();
    return !own || kill(found.pid, signal) == 0 || errno != EPERM;
  }
  return is_another_now(found) || send_signal(handle, signal) || errno != EPERM;
}

/// While this object exists, the kernel reaps children that end (SA_NOCLDWAIT), without a zombie.
/// Children that ended before stay zombies.
class KernelReaps {
 public:
  KernelReaps() {
    struct sigaction unwaited {};
    unwaited.sa_handler = SIG_DFL;
    unwaited.sa_flags = SA_NOCLDWAIT;
    sigaction(SIGCHLD, &unwaited, &before_);
  }
  ~KernelReaps() { sigaction(SIGCHLD, &before_, nullptr); }
  KernelReaps(const KernelReaps&) = delete;
  KernelReaps& operator=(const KernelReaps&) = delete;

 private:
  struct sigaction before_ {};
};

}  // namespace

bool sweep_until_gone(int wake_fd, const std::function<bool(bool first)>& sweep) {
  const Deadline give_up = later(BootClock::now(), max_kill_time);
  const int nice_before = getpriority(PRIO_PROCESS, 0);
  setpriority(PRIO_PROCESS, 0, lowest_nice);
  bool gone = sweep(true);
  while (!gone && BootClock::now() < give_up) {
    pollfd fds[] = {{wake_fd, POLLIN, 0}};
    poll_until(fds, later(BootClock::now(), sweep_interval));
    gone = sweep(false);
  }
  setpriority(PRIO_PROCESS, 0, nice_before);
  return gone;
}

ProcessTree::ProcessTree() : root_(getpid()) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  for (int i = 0; i < most_fds_needed; ++i) {
    Fd reserved(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0));
    if (reserved) reserved_fds_.push_back(std::move(reserved));
  }
  // After `sleep 9 & exec dlock …` dlock has inherited a child. Checking whether there is any costs
  // less than reading the list.
  siginfo_t any{};
  if (waitid(P_ALL, 0, &any, WEXITED | WNOHANG | WNOWAIT) < 0 && errno == ECHILD) return;
  const auto children = children_of(root_).value_or(std::vector<pid_t>{});
  preexisting_children_.insert(children.begin(), children.end());
}

ProcessTree::ProcessTree(pid_t dlock, std::set<pid_t> preexisting_children)
    : root_(dlock), preexisting_children_(std::move(preexisting_children)) {}

ProcessTree::ProcessTree(const ProcessId& script) : known_{{script.pid, 0, script.started}} {}

std::vector<Descendant> ProcessTree::all(
    const std::function<void(const Descendant&)>& visit) const {
  std::vector<Descendant> tree;
  std::set<pid_t> listed{root_};
  const auto add = [&](const Descendant& found) {
    if (listed.insert(found.pid).second) tree.push_back(found);
  };
  const auto add_children = [&](pid_t parent) {
    for (const pid_t pid : children_of(parent).value_or(std::vector<pid_t>{})) {
      if (preexisting_children_.contains(pid) || !is_of_the_command(pid)) continue;
      const auto now = stat_of(pid);
      // An orphan has a new parent in the tree; a parent outside means that the pid was reused.
      if (now && now->parent != parent && !listed.contains(now->parent)) continue;
      add({pid, parent, now ? now->started : 0});
    }
  };
  for (const Descendant& each : known_) {
    if (!is_another_now(each)) add(each);
  }
  if (root_ != 0) add_children(root_);
  for (std::size_t i = 0; i < tree.size(); ++i) {
    visit(tree[i]);
    add_children(tree[i].pid);
  }
  return tree;
}

void ProcessTree::signal(int signal, const Predicate& hears) {
  // Find all before the first signal, and signal parents first: otherwise a shell could see its
  // child end before its own signal arrives, and go on with its next command.
  auto tree = all();
  std::erase_if(tree, [&](const Descendant& found) {
    return hears(found.pid) && !signal_found(found, signal);
  });
  if (root_ == 0) known_ = std::move(tree);
}

void ProcessTree::await_end(Deadline until) const {
  for (const Descendant& each : known_) {
    const Fd end = open_pidfd(each.pid);
    if (!end || is_another_now(each)) continue;
    pollfd fds[] = {{end.get(), POLLIN, 0}};
    poll_until(fds, until);
  }
}

void ProcessTree::kill_once(bool first) {
  if (!first) freeze();
  signal(SIGKILL);
}

std::vector<Survivor> ProcessTree::kill(pid_t child, int child_end, Signals& signals) {
  reserved_fds_.clear();
  std::optional<KernelReaps> kernel_reaps;
  const bool gone = sweep_until_gone(signals.fd(), [&](bool first) {
    for (auto event = signals.take(); event && event->number != SIGCHLD;) event = signals.take();
    ::kill(child, SIGKILL);
    // The child must end before KernelReaps exists: it then stays a zombie and keeps its pid.
    // Processes that end later leave no zombies. A family that never stops forking would make
    // zombies faster than dlock can reap them.
    pollfd end[] = {{child_end, POLLIN, 0}};
    if (!kernel_reaps) poll_until(end, later(BootClock::now(), sweep_interval));
    if (!kernel_reaps && is_reapable(child)) {
      kernel_reaps.emplace();
      const Deadline give_up = later(BootClock::now(), max_kill_time);
      while (beside(child) == Beside::unclear && BootClock::now() < give_up) {
      }
    }
    kill_once(first);
    return is_reapable(child) && beside(child) == Beside::nobody;
  });
  return gone ? std::vector<Survivor>{} : survivors();
}

void ProcessTree::freeze() const {
  const Deadline give_up = later(BootClock::now(), longest_freeze);
  std::set<pid_t> told;
  std::size_t told_before = 0;
  do {
    told_before = told.size();
    // Go top down, so that a forking process is stopped before its children are listed.
    all([&](const Descendant& found) {
      if (told.insert(found.pid).second) signal_found(found, SIGSTOP);
    });
  } while (told.size() > told_before && BootClock::now() < give_up);
}

std::vector<Survivor> ProcessTree::survivors() const {
  std::vector<Survivor> left;
  if (!children_of(root_)) left.push_back({0, 0, "", "what /proc does not show"});
  for (const Descendant& each : all()) {
    const auto stat = stat_of(each.pid);
    // A child of ours that cannot be reaped may look like a zombie: one of its threads is stuck.
    if (stat && !stat->runs() && (each.parent != getpid() || is_reapable(each.pid))) continue;
    left.push_back({each.pid, stat ? stat->group : 0, command_name(each.pid),
                    why_it_lives(each.pid, stat ? stat->state : '?')});
  }
  return left;
}

bool ProcessTree::reap_adopted(pid_t child) {
  for (int reaped = 0; reaped < most_reaped_at_once; ++reaped) {
    siginfo_t ended{};
    waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT);
    if (ended.si_pid == 0 || ended.si_pid == child) return false;
    reap(ended.si_pid);
  }
  return true;
}

ProcessTree::Beside ProcessTree::beside(pid_t child) {
  // A process that was listed alive and reaped a moment later may have left us a child after the
  // list was read, so only an empty list is proof.
  for (int reaped = 0; reaped < most_reaped_at_once;) {
    const auto children = children_of(root_);
    if (!children) return Beside::somebody;
    const int reaped_before = reaped;
    bool alive = false;
    for (const pid_t pid : *children) {
      if (pid == child) continue;
      if (reap(pid)) {
        ++reaped;
      } else {
        alive = alive || (!preexisting_children_.contains(pid) && is_of_the_command(pid));
      }
      if (reaped == most_reaped_at_once) return Beside::unclear;
    }
    if (alive) return Beside::somebody;
    if (reaped == reaped_before) return Beside::nobody;
  }
  return Beside::unclear;
}

bool ProcessTree::reap(pid_t pid) {
  siginfo_t ended{};
  if (waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOHANG) < 0) return true;
  if (ended.si_pid == 0) return false;
  preexisting_children_.erase(pid);
  return true;
}

}  // namespace dlock
