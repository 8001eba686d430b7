#include "supervise/watchdog.hpp"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <limits>
#include <new>
#include <set>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/process.hpp"
#include "base/process_identity.hpp"
#include "base/wait.hpp"
#include "supervise/process_tree.hpp"

namespace dlock {
namespace {

static_assert(std::atomic<BootClock::rep>::is_always_lock_free);

std::set<pid_t> with_this_process(const std::vector<pid_t>& pids) {
  std::set<pid_t> all(pids.begin(), pids.end());
  all.insert(getpid());
  return all;
}

/// Closes inherited descriptors: a pipe that stays open would keep its reader waiting.
void close_all_but(int kept) {
  if (kept > 0) close_fds(0, kept - 1);
  close_fds(kept + 1, std::numeric_limits<int>::max());
}

}  // namespace

/// The process of the watchdog.
class Watchdog::WatchdogProcess {
 public:
  /// `preexisting_children` are the children that dlock had before the command.
  WatchdogProcess(pid_t dlock, const Fd& dlock_end, Shared& shared,
                  const std::vector<pid_t>& preexisting_children,
                  std::function<std::vector<pid_t>()> work)
      : dlock_(dlock),
        dlock_end_(dlock_end),
        shared_(shared),
        tree_(dlock, with_this_process(preexisting_children)),
        work_(std::move(work)) {}

  [[noreturn]] void watch() {
    pollfd end[] = {{dlock_end_.get(), POLLIN, 0}};
    while (poll_until(end, kill_at()) == 0) {
      if (BootClock::now() < kill_at()) continue;  // renewed meanwhile
      if (child_ended_by_itself()) _exit(0);
      kill_tree();
      poll_until(end, never);
    }
    kill_orphans();
    _exit(0);
  }

 private:
  Deadline kill_at() const {
    const Deadline safe_until{BootClock::duration(shared_.safe_until)};
    return safe_until == never ? never : safe_until - shared_.kill_cost;
  }

  /// Whether the child has ended although dlock lives. If dlock dies, the kernel kills the child
  /// afterwards, when dlock is a zombie already.
  bool child_ended_by_itself() const {
    const pid_t child = shared_.left_by;
    if (child == 0 || process_life(process_now(child)) != Life::over) return false;
    return process_life(process_now(dlock_)) == Life::alive;
  }

  /// Kills the tree like the supervisor, but cannot reap.
  void kill_tree() {
    sweep_until_gone(-1, [this](bool first) {
      const auto left = tree_.all();
      if (std::none_of(left.begin(), left.end(), runs)) return true;
      shared_.has_killed = true;
      tree_.kill_once(first);
      return false;
    });
  }

  static bool runs(const Descendant& each) {
    const auto now = stat_of(each.pid);
    return !now || now->runs();
  }

  /// Kills the tree after dlock has ended and the tree has another parent.
  void kill_orphans() const {
    sweep_until_gone(-1, [this](bool) {
      const auto left = work_();
      for (const pid_t pid : left) kill(pid, SIGKILL);
      return left.empty();
    });
  }

  const pid_t dlock_;
  const Fd& dlock_end_;
  Shared& shared_;
  ProcessTree tree_;
  const std::function<std::vector<pid_t>()> work_;
};

Watchdog::Watchdog(Deadline safe_until, milliseconds kill_cost,
                   std::function<std::vector<pid_t>()> work) {
  void* page =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) throw_errno("cannot start the watchdog: mmap");
  shared_ = new (page) Shared{safe_until.time_since_epoch().count(), kill_cost};
  const pid_t dlock = getpid();
  // List the children here: by the time the other process runs, the command may be among them.
  const auto preexisting_children = children_of(dlock).value_or(std::vector<pid_t>{});
  const Fd dlock_end = open_pidfd(dlock);
  const pid_t pid = dlock_end ? fork() : -1;
  if (pid == 0) {
    try {
      setsid();
      prctl(PR_SET_NAME, "dlock-watchdog");
      close_all_but(dlock_end.get());
      WatchdogProcess(dlock, dlock_end, *shared_, preexisting_children, std::move(work)).watch();
    } catch (...) {
      _exit(1);  // never return into the caller's code
    }
  }
  if (pid > 0) pidfd_ = open_pidfd(pid);
  if (pid > 0 && pidfd_) return;
  const int error = errno;
  if (pid > 0) kill(pid, SIGKILL);
  munmap(shared_, sizeof(Shared));
  errno = error;
  throw_errno("cannot start the watchdog");
}

Watchdog::~Watchdog() {
  dismiss();
  munmap(shared_, sizeof(Shared));
}

void Watchdog::dismiss() {
  if (!pidfd_) return;
  send_signal(pidfd_, SIGKILL);
  siginfo_t end{};
  waitid(P_PIDFD, static_cast<id_t>(pidfd_.get()), &end, WEXITED);
  pidfd_.reset();
}

}  // namespace dlock
