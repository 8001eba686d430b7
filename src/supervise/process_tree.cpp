#include "supervise/process_tree.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <memory>
#include <string>

#include "base/fd.hpp"

namespace dlock {

namespace {

std::string contents(const std::string& path) {
  std::string all;
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char block[4096];
  ssize_t got = 0;
  while (file && (got = read(file.get(), block, sizeof block)) > 0) {
    all.append(block, static_cast<std::size_t>(got));
  }
  return all;
}

void append_numbers(const std::string& text, std::vector<pid_t>& numbers) {
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    pid_t number = 0;
    const auto [rest, error] = std::from_chars(at, end, number);
    if (error == std::errc()) numbers.push_back(number);
    at = rest + 1;
  }
}

/// A process's children are listed by the thread that forked them.
std::vector<pid_t> children_of(const std::string& process) {
  std::vector<pid_t> children;
  const std::string tasks = "/proc/" + process + "/task";
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(tasks.c_str()), closedir);
  while (const dirent* task = folder ? readdir(folder.get()) : nullptr) {
    if (task->d_name[0] == '.') continue;
    append_numbers(contents(tasks + "/" + task->d_name + "/children"), children);
  }
  return children;
}

/// 0 if there is no such process.
pid_t parent_of(pid_t pid) {
  const std::string stat = contents("/proc/" + std::to_string(pid) + "/stat");
  const auto name_end = stat.rfind(')');  // the name may hold anything: ") S 1"
  pid_t parent = 0;
  if (name_end != std::string::npos && name_end + 4 < stat.size()) {
    std::from_chars(stat.data() + name_end + 4, stat.data() + stat.size(), parent);
  }
  return parent;
}

struct Found {
  pid_t parent;
  pid_t pid;
};

/// A pidfd names the process that has the number at the moment of opening. It is the one found if
/// its parent is still the same, or if it has become our orphan meanwhile.
void send(const Found& found, int signal) {
  const Fd handle(static_cast<int>(syscall(SYS_pidfd_open, found.pid, 0)));
  if (!handle) return;
  const pid_t parent = parent_of(found.pid);
  if (parent != found.parent && parent != getpid()) return;
  syscall(SYS_pidfd_send_signal, handle.get(), signal, nullptr, 0);
}

}  // namespace

ProcessTree::ProcessTree() {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  // Whoever does `sleep 9 & exec dlock …` has us inherit a child; asking whether there is any
  // costs less than reading the list.
  siginfo_t any{};
  if (waitid(P_ALL, 0, &any, WEXITED | WNOHANG | WNOWAIT) < 0 && errno == ECHILD) return;
  const auto children = children_of("self");
  strangers_.insert(children.begin(), children.end());
}

void ProcessTree::signal(int signal, pid_t except_group) const {
  std::vector<Found> tree{{0, getpid()}};
  for (std::size_t i = 0; i < tree.size(); ++i) {
    const pid_t parent = tree[i].pid;
    for (const pid_t pid : children_of(std::to_string(parent))) {
      if (!strangers_.contains(pid)) tree.push_back({parent, pid});
    }
  }
  // All are found before the first is sent anything, and the lowest come first: who ends leaves
  // its children to us, where nobody would look for them any more.
  for (std::size_t i = tree.size() - 1; i > 0; --i) {
    if (except_group == 0 || getpgid(tree[i].pid) != except_group) send(tree[i], signal);
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
  auto left = children_of("self");
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
