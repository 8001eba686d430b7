#include "supervise/process_tree.hpp"

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "base/process.hpp"

namespace dlock {

std::vector<Descendant> descendants_of(pid_t root, const std::set<pid_t>& strangers) {
  std::vector<Descendant> tree{{root, 0}};
  for (std::size_t i = 0; i < tree.size(); ++i) {
    const pid_t parent = tree[i].pid;
    for (const pid_t pid : children_of(parent)) {
      if (!strangers.contains(pid)) tree.push_back({pid, parent});
    }
  }
  tree.erase(tree.begin());
  return tree;
}

void send(const Descendant& found, int signal, pid_t reaper) {
  const Fd handle = open_pidfd(found.pid);
  if (!handle) return;
  const auto now = stat_of(found.pid);
  if (!now || (now->parent != found.parent && now->parent != reaper)) return;
  syscall(SYS_pidfd_send_signal, handle.get(), signal, nullptr, 0);
}

ProcessTree::ProcessTree() {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  // Whoever does `sleep 9 & exec dlock …` has us inherit a child; asking whether there is any
  // costs less than reading the list.
  siginfo_t any{};
  if (waitid(P_ALL, 0, &any, WEXITED | WNOHANG | WNOWAIT) < 0 && errno == ECHILD) return;
  const auto children = children_of(getpid());
  strangers_.insert(children.begin(), children.end());
}

void ProcessTree::signal(int signal, pid_t except_group) const {
  // All are found before the first is sent anything, and the lowest come first: who ends leaves
  // its children to us, where nobody would look for them any more.
  const auto tree = descendants_of(getpid(), strangers_);
  for (auto found = tree.rbegin(); found != tree.rend(); ++found) {
    if (except_group == 0 || getpgid(found->pid) != except_group) send(*found, signal, getpid());
  }
}

void ProcessTree::reap_adopted(pid_t child) {
  siginfo_t ended{};
  while (waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) == 0) {
    const pid_t pid = ended.si_pid;
    if (pid == 0 || pid == child) break;
    reap(pid);
    ended.si_pid = 0;
  }
}

std::vector<pid_t> ProcessTree::reap_beside(pid_t child) {
  auto left = children_of(getpid());
  std::erase_if(left,
                [&](pid_t pid) { return pid == child || strangers_.contains(pid) || reap(pid); });
  return left;
}

bool ProcessTree::reap(pid_t pid) {
  siginfo_t ended{};
  if (waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOHANG) < 0) return true;
  if (ended.si_pid == 0) return false;
  strangers_.erase(pid);
  return true;
}

}  // namespace dlock
