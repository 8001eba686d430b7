#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.hpp"

namespace dlock {

/// The contents of a file, for example in /proc; empty if it cannot be read.
std::string file_text(const std::string& path);

/// The same without the line ends after the text.
std::string line_in(const std::string& path);

/// The value of an environment variable; empty if it is not set.
std::string variable(const char* name);

/// The fields of /proc/PID/stat (proc(5)) that dlock needs.
struct ProcessStat {
  char state = '?';
  pid_t parent = 0;
  pid_t group = 0;
  pid_t session = 0;
  std::uint64_t threads = 0;
  std::uint64_t started = 0;  ///< clock ticks since boot
  /// False for a zombie. A process whose first thread has exited looks like a zombie while other
  /// threads run.
  bool runs() const { return (state != 'Z' && state != 'X') || threads > 1; }
};

/// Returns nothing if the process does not exist, or if /proc hides it or belongs to another pid
/// namespace.
std::optional<ProcessStat> stat_of(pid_t pid);

/// The program name as the kernel stores it: at most 15 bytes, of any value; empty if stat_of()
/// would return nothing.
std::string command_name(pid_t pid);

/// The name, in ps(1), of an attach daemon or a process that reads passwords. A dlock whose command
/// has started such a process does not count processes of this name among the command's.
constexpr char keeper_name[] = "dlock-keeper";

/// Returns the children, zombies included; an empty list if the process does not exist. Returns
/// nothing if /proc cannot be read now: no descriptor is free, /proc is missing, or it belongs to
/// another pid namespace.
std::optional<std::vector<pid_t>> children_of(pid_t pid);

/// The entries of a /proc folder that are numbers: its processes, or the fds of one process. Empty
/// if the folder cannot be read.
std::vector<int> numbers_in(const std::string& folder);

/// Closes all descriptors from `first` to `last`. Before Linux 5.9, or if a sandbox forbids
/// close_range(2), it closes those that /proc lists.
void close_fds(int first, int last);

/// Returns an fd that is readable when the process ends; empty if there is no such process. The
/// caller must check the process after this call, because the pid may have been reused.
Fd open_pidfd(pid_t pid);

/// Returns false, with errno, if the process has ended or dlock may not signal it.
bool send_signal(const Fd& pidfd, int signal);

/// The name, such as `TERM`; the number of a signal without a name.
std::string signal_name(int signal);

}  // namespace dlock
