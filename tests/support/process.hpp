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

/// The exit of a process and its output.
struct Result {
  int exit_code = -1;  ///< -1 if a signal ended it
  int signal = 0;      ///< 0 if it exited
  std::string out;
  std::string err;  ///< empty if both streams went to `out`
  std::chrono::nanoseconds duration{0};
};

/// Everything but argv. The defaults: the test's environment and directory, empty stdin, separate
/// captures of stdout and stderr, a session of its own.
struct ProcessOptions {
  std::map<std::string, std::string> env{};  ///< set, after `unset` and `unset_prefixes`
  std::vector<std::string> unset{};
  std::vector<std::string> unset_prefixes{};
  std::string cwd{};
  std::string input{};  ///< text for stdin (a file, not a pipe)
  int stdin_fd = -1;    ///< replaces `input`; the caller keeps it
  int stdout_fd = -1;   ///< replaces the capture; the caller keeps it
  int stderr_fd = -1;
  bool merge = false;           ///< stderr into `out`, in the order written
  bool own_session = true;      ///< false: only its own process group
  bool die_with_thread = true;  ///< killed when the thread that started it ends
  /// Runs in the child just before exec; only async-signal-safe calls are allowed.
  std::function<void()> before_exec{};
};

/// A child process of the test. Its output goes to memory, so that it never blocks on a full pipe
/// and the test can read it at any time. The destructor kills it and the rest of its session (or
/// group) with SIGKILL, and reaps it. Any thread may start one, but only one thread at a time may
/// use it.
class Process {
 public:
  /// Error if the program cannot be executed.
  explicit Process(const std::vector<std::string>& argv, const ProcessOptions& options = {});
  ~Process();
  Process(Process&&) = default;
  Process& operator=(Process&&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  /// SIGSTOP; all its threads have stopped when this returns.
  void stop() const;
  Result kill_hard();  ///< kill -9; gone when this returns
  /// Sends SIGKILL to every process of its session (or group), even after it has ended.
  void kill_all();
  bool running() const;
  /// Waits for the end; Error with its output if it does not end in time.
  Result wait(milliseconds within = milliseconds(60'000));
  /// Its output so far.
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

/// Starts a process, waits for its end, and returns the result.
Result run(const std::vector<std::string>& argv, const ProcessOptions& options = {});

/// Whether a process with this pid runs; a zombie does not.
bool is_alive(pid_t pid);

/// Whether the process is in this state of proc(5): 'T' is stopped, 'S' is asleep.
bool is_in_state(char state, pid_t pid);

/// The number of processes in this session, zombies included.
std::size_t processes_of_session(pid_t session);

/// The number of threads of this process, just joined ones included.
std::size_t thread_count();

/// The same, once recently joined threads are gone and a sanitizer has started its background
/// thread, which it does with our first thread.
std::size_t settled_thread_count();

/// How often a process has given up its processor voluntarily, as when it sleeps; -1 if unknown.
long voluntary_switches(pid_t pid);

/// Waits until each living process of `pids` is asleep and has not woken for `quiet`; false on
/// timeout. A process that waits for a processor counts as awake, and so does a stopped one.
bool fall_asleep(const std::vector<pid_t>& pids, milliseconds quiet = milliseconds(20));

}  // namespace dlock::test
