#include "commands/run_report.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/process.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"
#include "commands/lock_acquirer.hpp"
#include "output/metrics.hpp"
#include "output/sentences.hpp"

namespace dlock {
namespace {

constexpr std::chrono::seconds longest_call{30};
/// The time for all remaining calls when dlock is about to exit.
constexpr std::chrono::seconds longest_rest{10};
/// The time that dlock waits until the hook process has done that.
constexpr std::chrono::seconds longest_finish = 2 * longest_rest;

constexpr int channel_number = 3;
constexpr int not_executed = 127;
/// The signals that the hook process ignores.
constexpr int outlived[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE};

/// The code of the hook process. A message is a list of facts `NAME=value`, each followed by a NUL.
class HookCaller {
 public:
  HookCaller(std::string command, const Log& log) : command_(std::move(command)), log_(log) {}

  [[noreturn]] void run() {
    while (const auto message = next()) {
      call(*message);
      while (waitpid(-1, nullptr, WNOHANG) > 0) {
      }
    }
    _exit(0);
  }

  /// Closes all that was inherited from dlock, except stderr and the channel, which becomes
  /// `channel_number`.
  void detach(int channel) {
    setpgid(0, 0);
    prctl(PR_SET_NAME, "dlock-hook");
    // The process ends with dlock, and has to report dlock's end. Signals to a whole service or
    // session (systemd's SIGTERM) reach it, too, and stderr may have no reader any more.
    for (std::size_t i = 0; i < std::size(outlived); ++i) {
      struct sigaction ignored {};
      ignored.sa_handler = SIG_IGN;
      sigaction(outlived[i], &ignored, &on_entry_[i]);
    }
    // The process and its calls are in the background of the terminal, where `stty tostop` stops a
    // writer unless SIGTTOU is blocked.
    sigset_t terminal_output;
    sigemptyset(&terminal_output);
    sigaddset(&terminal_output, SIGTTOU);
    sigprocmask(SIG_BLOCK, &terminal_output, nullptr);
    // If SIGCHLD were ignored, the kernel would reap a call before its exit status is read.
    struct sigaction standard {};
    standard.sa_handler = SIG_DFL;
    sigaction(SIGCHLD, &standard, &chld_on_entry_);
    // An orphan of a call must not become a child of dlock, or it would count as part of COMMAND's
    // process tree.
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(nothing, STDIN_FILENO);
    dup2(STDERR_FILENO, STDOUT_FILENO);
    if (channel == channel_number) {
      fcntl(channel, F_SETFD, FD_CLOEXEC);
    } else {
      dup3(channel, channel_number, O_CLOEXEC);
    }
    close_fds(channel_number + 1, std::numeric_limits<int>::max());
  }

 private:
  static std::optional<std::string> next() {
    char first = 0;
    const auto length = recv(channel_number, &first, 1, MSG_PEEK | MSG_TRUNC);
    if (length <= 0) return std::nullopt;
    std::string message(static_cast<std::size_t>(length), '\0');
    recv(channel_number, message.data(), message.size(), 0);
    return message;
  }

  void call(const std::string& message) {
    const pid_t pid = fork();
    if (pid < 0) return warn(std::string("was not called: fork: ") + std::strerror(errno));
    if (pid == 0) exec_call(message);
    setpgid(pid, pid);  // in parent and child, because either may run first
    const Fd end = open_pidfd(pid);
    if (await(pid, end)) return check_end(pid);
    kill(-pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    warn("was stopped: it ran for too long");
  }

  /// Returns whether the call ended in time. Before Linux 5.3, or if a sandbox forbids
  /// pidfd_open(2), `end` is not open.
  bool await(pid_t pid, const Fd& end) {
    constexpr milliseconds look_again{20};
    const Deadline by = later(BootClock::now(), longest_call);
    while (BootClock::now() < std::min(by, last_by_)) {
      pollfd fds[] = {{end.get(), POLLIN, 0}, {last_by_ == never ? channel_number : -1, 0, 0}};
      fds[1].events = POLLRDHUP;
      const Deadline look = end ? never : later(BootClock::now(), look_again);
      poll_until(fds, std::min({by, last_by_, look}));
      siginfo_t ended{};
      waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOHANG | WNOWAIT);
      if (ended.si_pid != 0) return true;
      if (fds[1].revents != 0) last_by_ = later(BootClock::now(), longest_rest);
    }
    return false;
  }

  [[noreturn]] void exec_call(const std::string& message) const {
    setpgid(0, 0);
    for (std::size_t i = 0; i < std::size(outlived); ++i) {
      sigaction(outlived[i], &on_entry_[i], nullptr);
    }
    sigaction(SIGCHLD, &chld_on_entry_, nullptr);
    for (std::size_t at = 0; at < message.size();) {
      const std::string fact = message.c_str() + at;
      const auto equals = fact.find('=');
      const std::string name = fact.substr(0, equals);
      const std::string value = fact.substr(equals + 1);
      value.empty() ? unsetenv(name.c_str())                   // NOLINT(concurrency-mt-unsafe)
                    : setenv(name.c_str(), value.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
      at += fact.size() + 1;
    }
    execl("/bin/sh", "sh", "-c", command_.c_str(), nullptr);
    _exit(not_executed);
  }

  void check_end(pid_t pid) {
    int status = 0;
    waitpid(pid, &status, 0);
    if (WIFSIGNALED(status)) return warn("died of signal " + signal_name(WTERMSIG(status)));
    if (status != 0) warn("exited with " + std::to_string(WEXITSTATUS(status)));
  }

  void warn(const std::string& what) {
    if (!warned_) log_.warning("warning: the command of --hook " + what);
    warned_ = true;
  }

  const std::string command_;
  const Log& log_;
  Deadline last_by_ = never;  ///< set once dlock reports no more events
  struct sigaction on_entry_[std::size(outlived)]{};
  struct sigaction chld_on_entry_ {};
  bool warned_ = false;
};

}  // namespace

Hook::Hook(const std::string& command, const Log& log) : log_(log) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    warn(std::strerror(errno));
    return;
  }
  channel_ = Fd(ends[0]);
  const Fd other_end(ends[1]);
  const pid_t pid = fork();
  if (pid == 0) {
    try {
      channel_.reset();
      HookCaller caller(command, log);
      caller.detach(other_end.get());
      caller.run();
    } catch (...) {
      _exit(1);  // must not return into the code of the parent
    }
  }
  if (pid < 0) warn(std::strerror(errno));
}

void Hook::send(const Facts& facts) {
  std::string message;
  for (const auto& [name, value] : facts) message.append(name + "=" + value).push_back('\0');
  const auto sent =
      ::send(channel_.get(), message.data(), message.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0) warn(std::strerror(errno));
}

void Hook::finish(Signals& signals) {
  shutdown(channel_.get(), SHUT_WR);
  const Deadline give_up = later(BootClock::now(), longest_finish);
  // The hook process closes its end of the channel when it ends.
  pollfd fds[] = {{channel_.get(), POLLIN, 0}, {signals.fd(), POLLIN, 0}};
  while (channel_ && poll_until(fds, give_up) > 0 && fds[0].revents == 0) {
    while (const auto event = signals.take()) {
      if (ends_waiting(event->number)) return;
    }
  }
}

void Hook::warn(const std::string& why) {
  if (!warned_) log_.warning("warning: --hook is not called: " + why);
  warned_ = true;
}

namespace {

/// Empty in a cooldown, because the holder has ended.
std::string first_holder(const Refusal& refusal) {
  if (refusal.held_by.empty()) return "";
  const Holder& first = refusal.held_by.front();
  if (!first.library.empty()) return client_text(first);
  return first.kept ? "" : who_text(first.who);
}

}  // namespace

RunReport::RunReport(const RunSettings& settings, const Log& log) : settings_(settings), log_(log) {
  if (settings.hook) hook_.emplace(*settings.hook, log);
}

void RunReport::waiting(const LockKey& key, const Refusal& refusal) {
  if (!hook_) return;
  hook_->send({{"DLOCK_EVENT", "waiting"},
               {"DLOCK_KEY", key.text},
               {"DLOCK_FENCE", ""},
               {"DLOCK_HOLDER", first_holder(refusal)},
               {"DLOCK_REASON", refusal_text(key, refusal)},
               {"DLOCK_EXIT_CODE", ""},
               {"DLOCK_WHERE", where_}});
}

void RunReport::lost(const RunStatus& status) {
  if (!loss_reported_) report("lost", status);
  loss_reported_ = true;
}

void RunReport::end(const RunStatus& status, bool released, Signals& signals) {
  if (status.lost || status.outcome == "lost") {
    lost(status);
  } else if (released) {
    report("released", status);
  }
  write_results(settings_.metrics_file, settings_.keys, settings_.status_fd, status, log_);
  if (hook_) hook_->finish(signals);
}

void RunReport::report(const char* event, const RunStatus& status) {
  if (!hook_) return;
  const bool ended = !status.outcome.empty();
  hook_->send({{"DLOCK_EVENT", event},
               {"DLOCK_KEY", key_list(status.locks)},
               {"DLOCK_FENCE", fence_list(status.locks).value_or("")},
               {"DLOCK_HOLDER", ""},
               {"DLOCK_REASON", status.reason},
               {"DLOCK_EXIT_CODE", ended ? std::to_string(status.exit_code) : ""},
               {"DLOCK_WHERE", where_}});
}

RunStatus status_of(const Error& error) {
  RunStatus status;
  status.outcome = "error";
  status.reason = error.what();
  status.exit_code = static_cast<int>(exit_code(error.kind()));
  return status;
}

void write_results(const std::optional<std::string>& metrics_file, const std::vector<LockKey>& keys,
                   std::optional<int> status_fd, const RunStatus& status, const Log& log) {
  // Without keys there is no metric to write, and the file of the previous run stays.
  if (metrics_file && !keys.empty()) {
    try {
      replace_metrics_file(*metrics_file, [&](std::string_view before) {
        return run_metrics(keys, status, wall_now(), before);
      });
    } catch (const Error& error) {
      log.warning("warning: cannot write --metrics " + escaped(*metrics_file) + ": " +
                  error.what());
    }
  }
  if (!status_fd || write_all(*status_fd, status_json(status))) return;
  log.warning("cannot write to --status-fd " + std::to_string(*status_fd) + ": " +
              std::strerror(errno));
}

std::string key_list(const std::vector<LockFence>& locks) {
  return joined(locks, "\n", [](const LockFence& lock) { return lock.key.text; });
}

}  // namespace dlock
