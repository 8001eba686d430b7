#include "lock/work.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/process.hpp"
#include "base/text.hpp"

namespace dlock {
namespace {

constexpr std::string_view mark = "DLOCK_OWNER=";

/// With hidepid, /proc hides other users' processes, also process 1, which always exists.
bool proc_shows_all() { return stat_of(1).has_value(); }

struct Environment {
  std::string text;
  bool hidden = false;  ///< the calling process may not read it
};

Environment environment_of(pid_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/environ";
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return {"", errno == EACCES || errno == EPERM};
  return {file_text(path)};
}

bool is_marked(std::string_view environment, const Owner& owner) {
  while (!environment.empty()) {
    const auto variable = take_until(environment, '\0');
    if (variable.starts_with(mark)) {
      return Owner{std::string(variable.substr(mark.size()))}.is_or_below(owner);
    }
  }
  return false;
}

/// Searches all of /proc for the processes of the work.
class Search {
 public:
  explicit Search(const Work& work) : work_(work) { bystanders_.insert(getpid()); }

  /// Looks once and returns the running processes that it found.
  std::vector<pid_t> look();
  /// Whether a listed process ended before it could be read: it may have forked, so look again.
  bool missed_some() const { return missed_some_; }

 private:
  bool works(pid_t pid, const ProcessStat& stat);

  const Work& work_;
  std::set<pid_t> bystanders_;  ///< not part of the work: never read again
  std::set<pid_t> blank_;       ///< had no environment at the first look
  bool missed_some_ = false;
};

std::vector<pid_t> Search::look() {
  missed_some_ = false;
  std::vector<pid_t> running;
  const auto pids = numbers_in("/proc");
  // Youngest first: on a busy host these vanish quickly.
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
  // The process may be about to execute a program, or to end.
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
  // A process that forks and ends during a look hides its child. So only a look in which
  // each listed process was still alive when it was read proves that the work has ended.
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
