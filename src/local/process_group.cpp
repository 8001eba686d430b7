#include "local/process_group.hpp"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace dlock {
namespace {

/// With hidepid, /proc shows a user nothing of others; process 1 always exists.
bool proc_shows_all() { return stat_of(1).has_value(); }

/// Without the calling process: a dlock that asks for a lock does no work under it yet. Where it is
/// the last process of a killed holder's pipeline, it would wait for its own end.
std::vector<pid_t> running_members(pid_t group) {
  auto members = numbers_in("/proc");
  std::erase_if(members, [&](pid_t pid) {
    if (pid == getpid()) return true;
    const auto stat = stat_of(pid);
    return !stat || stat->group != group || !stat->runs();
  });
  return members;
}

}  // namespace

Life group_life(const ProcessId& leader) {
  if (leader.pid <= 0) return Life::over;
  if (leader.pid_space == 0 || leader.pid_space != own_process().pid_space) return Life::unknown;
  const auto stat = stat_of(leader.pid);
  if (stat && leader.started != 0 && stat->started != leader.started) return Life::over;
  if (kill(-leader.pid, 0) != 0 && errno == ESRCH) return Life::over;
  if (stat && stat->runs() && stat->group == leader.pid) return Life::alive;
  if (!running_members(leader.pid).empty()) return Life::alive;
  return proc_shows_all() ? Life::over : Life::unknown;
}

std::vector<Fd> member_ends(pid_t group, std::size_t most) {
  std::vector<Fd> ends;
  if (group <= 0) return ends;  // the kernel's threads are in group 0
  for (const pid_t pid : running_members(group)) {
    if (ends.size() == most) break;
    if (Fd fd = open_pidfd(pid)) ends.push_back(std::move(fd));
  }
  return ends;
}

}  // namespace dlock
