#include "local/process_life.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string_view>

#include "local/hash.hpp"

namespace dlock {
namespace {

/// What dlock needs of /proc/PID/stat (proc(5)).
struct Stat {
  char state = '?';
  pid_t group = 0;
  std::uint64_t started = 0;
  bool runs() const { return state != 'Z' && state != 'X'; }
};

std::string read_small_file(const char* path) {
  const Fd fd(open(path, O_RDONLY | O_CLOEXEC));
  if (!fd) return {};
  char text[1024];
  const ssize_t got = read(fd.get(), text, sizeof text);
  return got > 0 ? std::string(text, static_cast<std::size_t>(got)) : std::string();
}

/// The command's name stands in parentheses and may hold anything, so fields count from the last
/// ')': 3 is the state, 5 the process group, 22 the start time.
std::optional<Stat> stat_of(pid_t pid) {
  char path[32];
  std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
  const std::string text = read_small_file(path);
  const auto close = text.rfind(')');
  if (close == std::string::npos || close + 2 >= text.size()) return std::nullopt;
  Stat stat;
  const char* at = text.c_str() + close + 2;
  stat.state = *at++;
  for (int field = 4; field <= 22 && *at != '\0'; ++field) {
    char* end = nullptr;
    const unsigned long long value = std::strtoull(at, &end, 10);
    if (field == 5) stat.group = static_cast<pid_t>(value);
    if (field == 22) stat.started = value;
    at = end;
  }
  return stat;
}

std::uint64_t own_pid_space() {
  struct stat info {};
  return stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
}

bool gone(pid_t pid_or_group) { return kill(pid_or_group, 0) != 0 && errno == ESRCH; }

/// With hidepid, /proc shows a user nothing of others; process 1 always exists.
bool proc_shows_all() { return stat_of(1).has_value(); }

std::vector<pid_t> running_members(pid_t group) {
  std::vector<pid_t> members;
  const std::unique_ptr<DIR, int (*)(DIR*)> proc(opendir("/proc"), closedir);
  if (!proc) return members;
  while (const dirent* entry = readdir(proc.get())) {  // NOLINT(concurrency-mt-unsafe)
    const pid_t pid = static_cast<pid_t>(std::strtol(entry->d_name, nullptr, 10));
    if (pid <= 0) continue;
    const auto stat = stat_of(pid);
    if (stat && stat->group == group && stat->runs()) members.push_back(pid);
  }
  return members;
}

Fd pidfd(pid_t pid) { return Fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))); }

}  // namespace

const ProcessId& own_process() {
  static ProcessId self;
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
  if (process == own_process()) return Life::alive;
  if (process.pid_space != own_process().pid_space) return Life::unknown;
  const auto stat = stat_of(process.pid);
  if (!stat) return gone(process.pid) ? Life::over : Life::unknown;
  if (process.started == 0) return Life::unknown;
  return stat->started == process.started && stat->runs() ? Life::alive : Life::over;
}

Life group_life(const ProcessId& leader) {
  if (leader.pid <= 0) return Life::over;
  if (leader.pid_space != own_process().pid_space) return Life::unknown;
  const auto stat = stat_of(leader.pid);
  if (stat && leader.started != 0 && stat->started != leader.started) return Life::over;
  if (gone(-leader.pid)) return Life::over;
  if (stat && stat->runs() && stat->group == leader.pid) return Life::alive;
  if (!running_members(leader.pid).empty()) return Life::alive;
  return proc_shows_all() ? Life::over : Life::unknown;
}

Fd process_end(const ProcessId& process) {
  Fd fd = pidfd(process.pid);
  // Looked at after the open: had the pid been given to another by then, this one has ended.
  if (fd && process_life(process) == Life::over) fd.reset();
  return fd;
}

std::vector<Fd> member_ends(pid_t group, std::size_t most) {
  std::vector<Fd> ends;
  for (const pid_t pid : running_members(group)) {
    if (ends.size() == most) break;
    if (Fd fd = pidfd(pid)) ends.push_back(std::move(fd));
  }
  return ends;
}

std::uint64_t boot_hash() {
  static const std::string id = read_small_file("/proc/sys/kernel/random/boot_id");
  return id.empty() ? 0 : fnv1a(id);
}

}  // namespace dlock
