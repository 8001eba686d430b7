#pragma once

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "base/clock.hpp"
#include "base/fd.hpp"

namespace dlock {

/// The code that runs in the side process. It runs commands with /bin/sh, each in its own process
/// group and with the signal dispositions that dlock inherited. It keeps only dlock's stderr open.
class SideCaller {
 public:
  /// The limit for all calls that are left when dlock wants to exit.
  static constexpr std::chrono::seconds longest_rest{10};

  SideCaller(const char* name, int channel);
  /// The next message on the channel; nothing once dlock has closed its end.
  std::optional<std::string> next() const;
  void reply(const std::string& message) const;
  /// Runs `prepare` and then `command` in a new process. Returns its status as waitpid(2) reports
  /// it, or nothing if the command took longer than `longest` and was killed.
  std::optional<int> call(const std::string& command, std::chrono::seconds longest,
                          const std::function<void()>& prepare);

 private:
  /// The signals that do not end this process.
  static constexpr int outlived[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE};

  bool await(pid_t pid, const Fd& end, std::chrono::seconds longest);
  [[noreturn]] void become(const std::string& command, const std::function<void()>& prepare) const;

  Deadline last_by_ = never;  ///< set once dlock has closed its end
  struct sigaction on_entry_[std::size(outlived)]{};
  struct sigaction chld_on_entry_ {};
};

/// dlock's side of the process. Neither the lock nor COMMAND waits for the commands that the
/// process runs, and processes that these commands leave behind do not count among COMMAND's.
class SideProcess {
 public:
  /// Starts the process, which runs `work` under the name `name` in ps(1). Call this before dlock
  /// starts a thread, blocks a signal, or opens a descriptor that no other process may keep open.
  /// Call it before ProcessTree, too, so that the process does not count among COMMAND's.
  SideProcess(const char* name, const std::function<void(SideCaller&)>& work);
  /// Lets the process end after its calls. If it has no calls, it ends at once, without a zombie.
  ~SideProcess();
  SideProcess(const SideProcess&) = delete;
  SideProcess& operator=(const SideProcess&) = delete;

  Fd channel;

 private:
  pid_t pid_ = -1;
};

/// `exited with 3` or `died of signal KILL`, for a status other than 0.
std::string end_of_call(int status);

}  // namespace dlock
