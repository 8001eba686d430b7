#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/fd.hpp"

namespace dlock::test {

/// How a process ended and what it wrote.
struct Result {
  int exit_code = -1;  ///< -1 where a signal ended it
  int signal = 0;      ///< 0 where it exited
  std::string out;
  std::string err;  ///< empty where both went to `out`
  std::chrono::nanoseconds duration{0};
};

/// Everything beside argv. The defaults: the test's own environment and directory, empty stdin,
/// stdout and stderr captured apart, a session of its own.
struct ProcessOptions {
  std::map<std::string, std::string> env;  ///< set, after `unset` and `unset_prefixes`
  std::vector<std::string> unset;
  std::vector<std::string> unset_prefixes;
  std::string cwd;
  std::string input;   ///< text for stdin (a file, not a pipe)
  int stdin_fd = -1;   ///< in place of `input`; stays the caller's
  int stdout_fd = -1;  ///< in place of the capture; stays the caller's
  int stderr_fd = -1;
  bool merge = false;           ///< stderr into `out`, in the order written
  bool own_session = true;      ///< false: only a process group of its own
  bool die_with_thread = true;  ///< killed when the thread that started it ends
  /// Runs in the child just before exec; async-signal-safe calls only.
  std::function<void()> before_exec;
};

/// A child process of the test. Captures into memory, so that it never blocks on a full pipe and
/// the test may look while it runs. Destruction kills it and what is left of its session (or
/// group) with SIGKILL and reaps it. Any thread may start one; one thread at a time may use it.
class Process {
 public:
  /// Error where the program cannot be executed.
  explicit Process(const std::vector<std::string>& argv, const ProcessOptions& options = {});
  ~Process();
  Process(Process&&) = default;
  Process& operator=(Process&&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  /// After SIGSTOP: every thread of it stands still when this returns.
  void wait_until_stopped() const;
  /// SIGKILL to every process of its session (or group), also after itself has ended.
  void kill_all();
  bool running() const;
  /// Waits for the end; Error with what it wrote where it does not end within the time.
  Result wait(milliseconds within = milliseconds(60'000));
  /// What it has written so far.
  std::string out() const;
  std::string err() const;

 private:
  bool ended(milliseconds within) const;
  void reap();

  std::vector<std::string> argv_;
  pid_t pid_ = -1;
  bool by_session_;
  Fd pidfd_;
  Fd out_;
  Fd err_;
  Deadline started_;
  std::optional<Result> result_;
};

/// Starts, waits for the end, and tells how it went.
Result run(const std::vector<std::string>& argv, const ProcessOptions& options = {});

/// Whether a process of this number runs; one that has ended and waits to be reaped does not.
bool is_alive(pid_t pid);

/// Whether the process is in this state, as proc(5) has it: 'T' is stopped, 'S' is asleep.
bool is_in_state(char state, pid_t pid);

/// How many processes of this session there are, those that wait to be reaped included.
std::size_t processes_of_session(pid_t session);

/// The threads of this process, those that have just been joined included.
std::size_t thread_count();

/// The same once no thread was joined a moment ago, and a sanitizer has begun the one that it
/// begins with the first of ours, and keeps.
std::size_t settled_thread_count();

}  // namespace dlock::test
