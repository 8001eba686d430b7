#include "supervise/process_tree.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <utility>

#include "base/clock.hpp"
#include "base/process.hpp"
#include "supervise/background.hpp"

namespace dlock {

namespace {

constexpr milliseconds longest_freeze{100};

/// How many processes to reap before the deadlines are checked again.
constexpr int most_reaped_at_once = 256;

constexpr int lowest_nice = -20;

/// The descriptors for a folder of /proc, a file in it, and a pidfd.
constexpr int spare_fds = 3;

/// The user of a process, as kill(2) checks it; empty if /proc hides it.
std::string owner_of(pid_t pid) {
  const std::string status = proc_text("/proc/" + std::to_string(pid) + "/status");
  const auto line = status.find("\nUid:\t");
  if (line == std::string::npos) return "";
  const auto uid = std::strtoul(status.c_str() + line + 6, nullptr, 10);
  return uid == 0 ? "root" : "uid " + std::to_string(uid);
}

/// An attach daemon becomes our child like any orphan, but it belongs to the script whose locks it
/// holds: a wait for it may be a wait for ourselves.
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

}  // namespace

std::vector<Descendant> descendants_of(pid_t root, const std::set<pid_t>& preexisting_children,
                                       const std::function<void(const Descendant&)>& visit) {
  std::vector<Descendant> tree{{root, 0}};
  for (std::size_t i = 0; i < tree.size(); ++i) {
    const pid_t parent = tree[i].pid;
    if (i > 0) visit(tree[i]);
    for (const pid_t pid : children_of(parent).value_or(std::vector<pid_t>{})) {
      if (preexisting_children.contains(pid) || !is_of_the_command(pid)) continue;
      tree.push_back({pid, parent});
    }
  }
  tree.erase(tree.begin());
  return tree;
}

bool send(const Descendant& found, int signal, const std::set<pid_t>& others) {
  const Fd handle = open_pidfd(found.pid);
  if (!handle) {
    // No descriptor is available. A child of our own keeps its pid until we reap it.
    const bool own = errno != ESRCH && found.parent == getpid();
    return !own || kill(found.pid, signal) == 0 || errno != EPERM;
  }
  const auto now = stat_of(found.pid);
  // A process that /proc hides belongs to another user, so the kernel refuses the signal.
  if (now && now->parent != found.parent && !others.contains(now->parent)) return true;
  return send_signal(handle, signal) || errno != EPERM;
}

Hurry::Hurry() : nice_before_(getpriority(PRIO_PROCESS, 0)) {
  setpriority(PRIO_PROCESS, 0, lowest_nice);
}

Hurry::~Hurry() { setpriority(PRIO_PROCESS, 0, nice_before_); }

ProcessTree::ProcessTree() : root_(getpid()) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  for (int i = 0; i < spare_fds; ++i) {
    Fd spare(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0));
    if (spare) spares_.push_back(std::move(spare));
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

std::vector<Descendant> ProcessTree::signal(int signal,
                                            const std::function<bool(pid_t)>& hears) const {
  // All are found before the first gets a signal, and parents get it first: a shell whose child
  // ends before its own signal arrives would go on with its next command.
  const auto tree = all();
  std::set<pid_t> reapers{root_};
  for (const Descendant& found : tree) reapers.insert(found.pid);
  std::vector<Descendant> refused;
  for (const Descendant& found : tree) {
    if (hears(found.pid) && !send(found, signal, reapers)) refused.push_back(found);
  }
  return refused;
}

void ProcessTree::freeze() const {
  const Deadline give_up = later(BootClock::now(), longest_freeze);
  std::set<pid_t> told;
  std::size_t told_before = 0;
  do {
    told_before = told.size();
    // Go top down, so that a forking process is stopped before its children are listed.
    descendants_of(root_, preexisting_children_, [&](const Descendant& found) {
      if (told.insert(found.pid).second) send(found, SIGSTOP, {root_});
    });
  } while (told.size() > told_before && BootClock::now() < give_up);
}

std::vector<Descendant> ProcessTree::all() const {
  return descendants_of(root_, preexisting_children_);
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
