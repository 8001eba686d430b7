#include "base/process.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <string_view>

#include "base/duration.hpp"
#include "base/text.hpp"

namespace dlock {
namespace {

std::string proc_path(pid_t pid, const std::string& file) {
  return "/proc/" + std::to_string(pid) + "/" + file;
}

/// Calls `use` with the name of every entry; returns false, with errno, if the folder cannot be
/// read.
template <typename Use>
bool for_each_entry(const std::string& folder, const Use& use) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open_folder(opendir(folder.c_str()), closedir);
  if (!open_folder) return false;
  // NOLINTNEXTLINE(concurrency-mt-unsafe)
  while (const dirent* entry = readdir(open_folder.get())) {
    use(entry->d_name);
  }
  return true;
}

/// Appends `text` if it is a number.
void append_number(std::string_view text, std::vector<int>& numbers) {
  const auto number = parse_number(text, 0, std::numeric_limits<int>::max());
  if (number) numbers.push_back(static_cast<int>(*number));
}

std::string text_of(const Fd& file) {
  std::string all;
  char block[4096];
  ssize_t got = 0;
  while (file && (got = read(file.get(), block, sizeof block)) > 0) {
    all.append(block, static_cast<std::size_t>(got));
  }
  return all;
}

bool is_gone(int error) { return error == ENOENT || error == ESRCH; }

/// Whether /proc exists and lists processes by the pids of this process's namespace. In a container
/// that mounts the host's /proc, for example, it belongs to another pid namespace.
bool proc_is_ours() {
  static const bool ours = [] {
    char digits[24] = {};
    const ssize_t length = readlink("/proc/self", digits, sizeof digits - 1);
    return length > 0 && std::to_string(getpid()) == digits;
  }();
  return ours;
}

}  // namespace

std::string file_text(const std::string& path) {
  return text_of(Fd(open(path.c_str(), O_RDONLY | O_CLOEXEC)));
}

std::string line_in(const std::string& path) {
  std::string text = file_text(path);
  while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
  return text;
}

std::string variable(const char* name) {
  // dlock never changes its own environment.
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  return value == nullptr ? "" : value;
}

/// The command's name is in parentheses and may hold any byte, so fields are counted from the last
/// ')': 3 is the state, 4 the parent, 5 the group, 6 the session, 20 the threads, 22 the start
/// time. The file is that of the first thread, which has the same fields: qemu-user writes
/// /proc/PID/stat itself for the process that reads its own, with a start time that no other
/// process sees.
std::optional<ProcessStat> stat_of(pid_t pid) {
  if (!proc_is_ours()) return std::nullopt;
  const std::string text = file_text(proc_path(pid, "task/" + std::to_string(pid) + "/stat"));
  const auto close = text.rfind(')');
  if (close == std::string::npos || close + 2 >= text.size()) return std::nullopt;
  ProcessStat stat;
  const char* at = text.c_str() + close + 2;
  stat.state = *at++;
  for (int field = 4; field <= 22 && *at != '\0'; ++field) {
    char* end = nullptr;
    const unsigned long long value = std::strtoull(at, &end, 10);
    if (field == 4) stat.parent = static_cast<pid_t>(value);
    if (field == 5) stat.group = static_cast<pid_t>(value);
    if (field == 6) stat.session = static_cast<pid_t>(value);
    if (field == 20) stat.threads = value;
    if (field == 22) stat.started = value;
    at = end;
  }
  return stat;
}

std::string command_name(pid_t pid) {
  std::string name = proc_is_ours() ? file_text(proc_path(pid, "comm")) : "";
  if (!name.empty() && name.back() == '\n') name.pop_back();
  return name;
}

/// Reads the lists of all threads: the kernel lists a child under the thread that forked it.
std::optional<std::vector<pid_t>> children_of(pid_t pid) {
  if (!proc_is_ours()) return std::nullopt;
  std::vector<pid_t> children;
  const std::string tasks = proc_path(pid, "task");
  bool read_one = false;
  bool failed = false;
  const bool listed = for_each_entry(tasks, [&](const char* task) {
    if (task[0] == '.') return;
    const Fd file(open((tasks + "/" + task + "/children").c_str(), O_RDONLY | O_CLOEXEC));
    if (!file) {
      failed = failed || !is_gone(errno);
      return;
    }
    read_one = true;
    const std::string list = text_of(file);
    for (std::string_view rest = list; !rest.empty();) {
      append_number(take_until(rest, ' '), children);
    }
  });
  failed = failed || (!listed && !is_gone(errno));
  // Ask kill(2), too: with a kernel that lists no children, every process seems to be gone.
  const bool gone = !read_one && kill(pid, 0) != 0 && errno == ESRCH;
  if (failed || (!read_one && !gone)) return std::nullopt;
  return children;
}

std::vector<int> numbers_in(const std::string& folder) {
  std::vector<int> numbers;
  for_each_entry(folder, [&](const char* name) { append_number(name, numbers); });
  return numbers;
}

void close_fds(int first, int last) {
  if (close_range(static_cast<unsigned>(first), static_cast<unsigned>(last), 0) == 0) return;
  for (const int fd : numbers_in("/proc/self/fd")) {
    if (fd >= first && fd <= last) close(fd);
  }
}

Fd open_pidfd(pid_t pid) { return Fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))); }

bool send_signal(const Fd& pidfd, int signal) {
  return syscall(SYS_pidfd_send_signal, pidfd.get(), signal, nullptr, 0) == 0;
}

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name != nullptr ? name : std::to_string(signal);
}

}  // namespace dlock
