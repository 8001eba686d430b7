#include "local/process_group.hpp"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>

namespace dlock {
namespace {

/// With hidepid, /proc shows a user nothing of others; process 1 always exists.
bool proc_shows_all() { return stat_of(1).has_value(); }

/// A look at all of /proc for the members of a group.
struct Look {
  std::vector<pid_t> running;
  /// Zombies, the calling process, and what is older than the work.
  std::vector<pid_t> bystanders;
  bool missed_some = false;  ///< a process that was listed had gone when it was looked at
};

/// Whether a member of the group does. Not the calling process: a dlock that asks for a lock does
/// no work under it yet. Where it is the last process of a killed holder's pipeline, it would wait
/// for its own end; and so would the script that started both, if that counted.
bool works(pid_t pid, const ProcessStat& stat, const Work& work) {
  return pid != getpid() && stat.runs() && stat.started >= work.since;
}

Look look_at(const Work& work) {
  Look look;
  for (const pid_t pid : numbers_in("/proc")) {
    // First what takes little time: on a busy host processes vanish all the while.
    const pid_t group = getpgid(pid);
    if (group >= 0 && group != work.leader.pid) continue;
    const auto stat = group < 0 ? std::nullopt : stat_of(pid);
    if (!stat) {
      look.missed_some = true;
    } else {
      (works(pid, *stat, work) ? look.running : look.bystanders).push_back(pid);
    }
  }
  return look;
}

bool has_members(pid_t group) { return kill(-group, 0) == 0 || errno != ESRCH; }

}  // namespace

Life group_life(const Work& work) {
  const ProcessId& leader = work.leader;
  if (leader.pid <= 0) return Life::over;
  if (leader.pid_space == 0 || leader.pid_space != own_process().pid_space) return Life::unknown;
  const auto stat = stat_of(leader.pid);
  if (stat && leader.started != 0 && stat->started != leader.started) return Life::over;
  if (stat && stat->group == leader.pid && works(leader.pid, *stat, work)) return Life::alive;
  // A member that forks and ends within a look hides its child, so a look that finds none proves
  // nothing by itself: only one that met the same bystanders as that before it, and all it listed.
  constexpr int most_looks = 20;
  std::vector<pid_t> before;
  for (int i = 0; i < most_looks; ++i) {
    if (!has_members(leader.pid)) return Life::over;
    Look look = look_at(work);
    if (!look.running.empty()) return Life::alive;
    if (!proc_shows_all()) return Life::unknown;
    const bool all_seen = !look.missed_some && !look.bystanders.empty();
    if (all_seen && look.bystanders == before) return Life::over;
    before = std::move(look.bystanders);
  }
  return Life::alive;
}

std::vector<Fd> member_ends(const Work& work, std::size_t most) {
  std::vector<Fd> ends;
  if (work.leader.pid <= 0) return ends;  // the kernel's threads are in group 0
  for (const pid_t pid : look_at(work).running) {
    if (ends.size() == most) break;
    if (Fd fd = open_pidfd(pid)) ends.push_back(std::move(fd));
  }
  return ends;
}

}  // namespace dlock
