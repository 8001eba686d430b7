#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.hpp"

namespace dlock {

/// All of a file of the kernel's (/proc, /sys); empty if it cannot be read.
std::string proc_text(const std::string& path);

/// The fields that dlock needs of /proc/PID/stat (proc(5)).
struct ProcessStat {
  char state = '?';
  pid_t parent = 0;
  pid_t group = 0;
  pid_t session = 0;
  std::uint64_t threads = 0;
  std::uint64_t started = 0;  ///< clock ticks since boot
  /// A zombie does not; but a process whose first thread has exited looks like one while others
  /// run.
  bool runs() const { return (state != 'Z' && state != 'X') || threads > 1; }
};

/// Nothing if there is no such process, or /proc hides it or belongs to another pid namespace.
std::optional<ProcessStat> stat_of(pid_t pid);

/// The name of its program as the kernel keeps it: 15 bytes at most, any bytes; empty like stat_of.
std::string command_name(pid_t pid);

/// The name of a process that keeps locks for a script in the background, for ps(1), and for a
/// dlock below which it was started and to whose command it does not belong.
constexpr char keeper_name[] = "dlock-keeper";

/// Zombies too; none if there is no such process. Nothing if /proc cannot be read now: no file
/// descriptor to be had, no /proc, or only that of another pid namespace.
std::optional<std::vector<pid_t>> children_of(pid_t pid);

/// What is named by a number in a folder of /proc: its processes, or the fds of one; empty if it
/// cannot be read.
std::vector<int> numbers_in(const std::string& folder);

/// Closes all descriptors from `first` to `last`. Before Linux 5.9, and where a sandbox forbids
/// close_range(2), those that /proc names.
void close_fds(int first, int last);

/// Readable when the process ends; empty if there is none. Which process it is must be checked
/// after the open: the number may have been given to another.
Fd open_pidfd(pid_t pid);

/// False, with errno, if it has ended or is not ours to signal.
bool send_signal(const Fd& pidfd, int signal);

/// A process as those of the same boot can recognise it: a pid alone is used again.
struct ProcessId {
  pid_t pid = 0;              ///< 0: nobody
  std::uint64_t started = 0;  ///< as in ProcessStat; 0: /proc did not say
  /// Inode of the pid namespace `pid` counts in; 0: /proc did not say, and nothing can be said of
  /// it.
  std::uint64_t pid_space = 0;
  bool operator==(const ProcessId&) const = default;
};

/// The state, as seen from here, of a process or a group.
enum class Life {
  alive,
  over,
  unknown,  ///< another pid namespace or an unknown one, or /proc hides it
};

/// The calling process. Asked of the kernel once a process; a forked child asks anew.
const ProcessId& own_process();

/// Process `pid` of this namespace as it is now; `started` is 0 if it has gone or is hidden.
ProcessId process_now(pid_t pid);

/// Whether the process runs. A zombie does not.
Life process_life(const ProcessId& process);

/// Readable when the process ends; empty if that has happened or cannot be watched.
Fd process_end(const ProcessId& process);

}  // namespace dlock
