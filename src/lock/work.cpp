#include "lock/work.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace dlock {
namespace {

constexpr std::string_view mark = "DLOCK_OWNER=";

/// With hidepid, /proc shows a user nothing of others; process 1 always exists.
bool proc_shows_all() { return stat_of(1).has_value(); }

struct Environment {
  std::string text;
  bool hidden = false;  ///< the calling process may not read it
};

Environment environment_of(pid_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/environ";
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return {"", errno == EACCES || errno == EPERM};
  return {proc_text(path)};
}

bool is_marked(std::string_view environment, const Owner& owner) {
  while (!environment.empty()) {
    const auto variable = environment.substr(0, environment.find('\0'));
    if (variable.starts_with(mark)) {
      return Owner{std::string(variable.substr(mark.size()))}.is_or_below(owner);
    }
    environment.remove_prefix(std::min(variable.size() + 1, environment.size()));
  }
  return false;
}

/// Looks at all of /proc for the work.
class Search {
 public:
  explicit Search(const Work& work) : work_(work) { bystanders_.insert(getpid()); }

  /// One look: the running processes that it met.
  std::vector<pid_t> look();
  /// Whether a process that the last look had listed was not to be seen in time: it may have forked
  /// before it ended.
  bool missed_some() const { return missed_some_; }

 private:
  bool works(pid_t pid, const ProcessStat& stat);

  const Work& work_;
  std::set<pid_t> bystanders_;  ///< no part of the work: not looked at again
  std::set<pid_t> blank_;       ///< without an environment at the first look
  bool missed_some_ = false;
};

std::vector<pid_t> Search::look() {
  missed_some_ = false;
  std::vector<pid_t> running;
  const auto pids = numbers_in("/proc");
  // The youngest first: on a busy host these vanish all the while.
  for (auto pid = pids.rbegin(); pid != pids.rend(); ++pid) {
    if (bystanders_.contains(*pid)) continue;
    const auto stat = stat_of(*pid);
    if (!stat) {
      missed_some_ = true;
    } else if (stat->started >= work_.since && works(*pid, *stat)) {
      running.push_back(*pid);
    } else if (!blank_.contains(*pid)) {
      bystanders_.insert(*pid);
    }
  }
  return running;
}

bool Search::works(pid_t pid, const ProcessStat& stat) {
  if (!stat.runs()) {
    missed_some_ = true;
    return false;
  }
  const Environment environment = environment_of(pid);
  if (environment.hidden) return stat.group == work_.leader.pid;
  if (!environment.text.empty()) {
    return is_marked(environment.text, work_.owner) && command_name(pid) != keeper_name;
  }
  // It may be about to execute a program, or to end.
  if (blank_.erase(pid) == 0) {
    blank_.insert(pid);
    missed_some_ = true;
  }
  return false;
}

}  // namespace

bool works_for(pid_t pid, const Owner& owner) { return is_marked(environment_of(pid).text, owner); }

Life work_life(const Work& work) {
  if (work.leader.pid <= 0) return Life::over;
  if (work.leader.pid_space == 0 || work.leader.pid_space != own_process().pid_space) {
    return Life::unknown;
  }
  // A process that forks and ends within a look hides its child, so only a look that met alive all
  // that it had listed proves that there is none.
  constexpr int most_looks = 20;
  Search search(work);
  for (int i = 0; i < most_looks; ++i) {
    if (!search.look().empty()) return Life::alive;
    if (!proc_shows_all()) return Life::unknown;
    if (!search.missed_some()) return Life::over;
  }
  return Life::alive;
}

std::vector<pid_t> running_processes(const Work& work) { return Search(work).look(); }

std::vector<Fd> work_ends(const Work& work, std::size_t most) {
  std::vector<Fd> ends;
  for (const pid_t pid : running_processes(work)) {
    if (ends.size() == most) break;
    if (Fd fd = open_pidfd(pid)) ends.push_back(std::move(fd));
  }
  return ends;
}

}  // namespace dlock
