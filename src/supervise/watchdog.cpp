#include "supervise/watchdog.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <limits>
#include <new>
#include <set>
#include <vector>

#include "base/error.hpp"
#include "base/process.hpp"
#include "supervise/process_tree.hpp"

namespace dlock {
namespace {

static_assert(std::atomic<BootClock::rep>::is_always_lock_free);

constexpr std::chrono::seconds longest_hunt{5};
constexpr milliseconds hunt_interval{5};

/// It would keep a pipe open that somebody reads to its end.
void close_all_but(int kept) {
  const auto fd = static_cast<unsigned>(kept);
  if (fd > 0) close_range(0, fd - 1, 0);
  close_range(fd + 1, std::numeric_limits<unsigned>::max(), 0);
}

}  // namespace

/// The other process.
class Watchdog::Guard {
 public:
  /// `strangers` were dlock's children before.
  Guard(pid_t dlock, const Fd& dlock_end, Shared& shared, const std::vector<pid_t>& strangers)
      : dlock_(dlock),
        dlock_end_(dlock_end),
        shared_(shared),
        strangers_(strangers.begin(), strangers.end()) {
    strangers_.insert(getpid());
  }

  [[noreturn]] void watch() const {
    pollfd end[] = {{dlock_end_.get(), POLLIN, 0}};
    while (poll_until(end, kill_at()) == 0) {
      if (BootClock::now() < kill_at()) continue;  // renewed meanwhile
      shared_.has_killed = true;
      kill_tree();
      poll_until(end, never);
    }
    if (shared_.group > 0) kill(-shared_.group, SIGKILL);
    _exit(0);
  }

 private:
  Deadline kill_at() const {
    const Deadline gone_by{BootClock::duration(shared_.gone_by)};
    return gone_by == never ? never : gone_by - kill_cost;
  }

  void kill_tree() const {
    const Deadline give_up = later(BootClock::now(), longest_hunt);
    while (BootClock::now() < give_up) {
      auto tree = descendants_of(dlock_, strangers_);
      std::erase_if(tree, [](const Descendant& found) {
        const auto now = stat_of(found.pid);
        return !now || !now->runs();
      });
      if (tree.empty()) return;
      // Reaped by a dlock that runs, the child no longer keeps its group's number from others.
      const bool child_is_there = std::any_of(tree.begin(), tree.end(), [&](const auto& found) {
        return getpgid(found.pid) == shared_.group;
      });
      if (shared_.group > 0 && child_is_there) kill(-shared_.group, SIGKILL);
      for (auto found = tree.rbegin(); found != tree.rend(); ++found) send(*found, SIGKILL, dlock_);
      poll_until({}, later(BootClock::now(), hunt_interval));
    }
  }

  pid_t dlock_;
  const Fd& dlock_end_;
  Shared& shared_;
  std::set<pid_t> strangers_;
};

Watchdog::Watchdog(Deadline gone_by) {
  void* page =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) throw_errno("cannot start the watchdog: mmap");
  shared_ = new (page) Shared{gone_by.time_since_epoch().count()};
  const pid_t dlock = getpid();
  const Fd dlock_end = open_pidfd(dlock);
  // Looked for here: by the time the other process runs, the child may be among them.
  const auto strangers = children_of(dlock);
  const pid_t pid = dlock_end ? fork() : -1;
  if (pid == 0) {
    setsid();
    close_all_but(dlock_end.get());
    Guard(dlock, dlock_end, *shared_, strangers).watch();
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
  syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGKILL, nullptr, 0);
  siginfo_t end{};
  waitid(P_PIDFD, static_cast<id_t>(pidfd_.get()), &end, WEXITED);
  pidfd_.reset();
}

}  // namespace dlock
