#include "base/process_identity.hpp"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/process.hpp"

namespace dlock {
namespace {

std::uint64_t own_pid_space() {
  struct stat info {};
  return stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
}

}  // namespace

const ProcessId& own_process() {
  thread_local ProcessId self;
  if (self.pid != getpid()) self = process_now(getpid());
  return self;
}

ProcessId process_now(pid_t pid) {
  static const std::uint64_t pid_space = own_pid_space();
  const auto stat = stat_of(pid);
  return ProcessId{pid, stat ? stat->started : 0, pid_space};
}

Life process_life(const ProcessId& process) {
  if (process.pid <= 0) return Life::over;
  if (process.pid_space == 0 || process.pid_space != own_process().pid_space) return Life::unknown;
  if (process == own_process()) return Life::alive;
  const auto stat = stat_of(process.pid);
  if (!stat) {
    const bool gone = kill(process.pid, 0) != 0 && errno == ESRCH;
    return gone ? Life::over : Life::unknown;
  }
  if (process.started == 0) return Life::unknown;
  return stat->started == process.started && stat->runs() ? Life::alive : Life::over;
}

Fd process_end(const ProcessId& process) {
  Fd fd = open_pidfd(process.pid);
  // Checked after the open: if another process has the pid now, the wanted one has ended.
  if (fd && process_life(process) == Life::over) fd.reset();
  return fd;
}

}  // namespace dlock
