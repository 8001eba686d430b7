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

/// In a process of dlock's own: runs commands by /bin/sh, each in a process group of its own and
/// with the signals that dlock found. Of all that dlock was given the process has stderr.
class SideCaller {
 public:
  /// For all calls that are left when dlock wants to exit.
  static constexpr std::chrono::seconds longest_rest{10};

  SideCaller(const char* name, int channel);
  /// The next message on the channel; nothing once dlock has closed its end.
  std::optional<std::string> next() const;
  void reply(const std::string& message) const;
  /// Runs `command` after `prepare`. Returns its status as waitpid(2) does; nothing if it took
  /// longer than `longest`, and was killed.
  std::optional<int> call(const std::string& command, std::chrono::seconds longest,
                          const std::function<void()>& prepare);

 private:
  /// The signals that do not end it.
  static constexpr int outlived[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE};

  bool await(pid_t pid, const Fd& end, std::chrono::seconds longest);
  [[noreturn]] void become(const std::string& command, const std::function<void()>& prepare) const;

  Deadline last_by_ = never;  ///< set once dlock has closed its end
  struct sigaction on_entry_[std::size(outlived)]{};
  struct sigaction chld_on_entry_ {};
};

/// dlock's end of such a process: neither the lock nor COMMAND waits for its calls, and what they
/// leave behind is none of COMMAND's tree.
class SideProcess {
 public:
  /// Has `work` done there, under `name` for ps(1): before dlock opens anything that it would keep
  /// open, has a thread or blocks a signal, and before ProcessTree, which then takes it for none of
  /// COMMAND's.
  SideProcess(const char* name, const std::function<void(SideCaller&)>& work);
  /// It ends once all its calls have; the usual one, which has none, leaves no zombie.
  ~SideProcess();
  SideProcess(const SideProcess&) = delete;
  SideProcess& operator=(const SideProcess&) = delete;

  Fd channel;

 private:
  pid_t pid_ = -1;
};

/// `exited with 3`, `died of signal KILL`: for a status other than 0.
std::string end_of_call(int status);

}  // namespace dlock
