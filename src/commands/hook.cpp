#include "commands/hook.hpp"

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
#include "base/process.hpp"
#include "base/wait.hpp"

namespace dlock {
namespace {

constexpr std::chrono::seconds longest_call{30};
/// For all calls that are left when dlock wants to exit.
constexpr std::chrono::seconds longest_rest{10};
/// Until the other process has seen to that.
constexpr std::chrono::seconds longest_finish = 2 * longest_rest;

constexpr int channel_number = 3;
constexpr int not_executed = 127;
/// The signals that do not end the other process.
constexpr int outlived[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE};

/// The other process. A message is the facts as `NAME=value`, a NUL behind each.
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

  /// Of all that dlock was given it keeps stderr and the channel, which is `channel`.
  void let_go(int channel) {
    setpgid(0, 0);
    prctl(PR_SET_NAME, "dlock-hook");
    // It ends with dlock, of which it has to tell yet: what is sent to all of a service or a
    // session (systemd's SIGTERM) reaches it too, and the reader of stderr may have gone.
    for (std::size_t i = 0; i < std::size(outlived); ++i) {
      struct sigaction ignored {};
      ignored.sa_handler = SIG_IGN;
      sigaction(outlived[i], &ignored, &on_entry_[i]);
    }
    // It is in the background of a terminal, and so are its calls: under `stty tostop` a line of
    // theirs would stop them. Where the signal is blocked the line is written.
    sigset_t terminal_output;
    sigemptyset(&terminal_output);
    sigaddset(&terminal_output, SIGTTOU);
    sigprocmask(SIG_BLOCK, &terminal_output, nullptr);
    // Ignored, it would have the kernel reap a call before its end is read.
    struct sigaction standard {};
    standard.sa_handler = SIG_DFL;
    sigaction(SIGCHLD, &standard, &chld_on_entry_);
    // A process that a call leaves behind must not become dlock's child, and so one of COMMAND's
    // tree.
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
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
    if (pid == 0) become(message);
    setpgid(pid, pid);  // here and there, as either may run first
    const Fd end = open_pidfd(pid);
    if (await(pid, end)) return told(pid);
    kill(-pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    warn("was stopped: it ran for too long");
  }

  /// Whether it ended in time. Before Linux 5.3, and where a sandbox refuses pidfd_open(2), `end`
  /// is not open.
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

  [[noreturn]] void become(const std::string& message) const {
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

  void told(pid_t pid) {
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
  Deadline last_by_ = never;  ///< set once dlock tells of no more events
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
  const Fd its_end(ends[1]);
  const pid_t pid = fork();
  if (pid == 0) {
    try {
      channel_.reset();
      HookCaller caller(command, log);
      caller.let_go(its_end.get());
      caller.run();
    } catch (...) {
      _exit(1);  // never into the code of the one that was forked
    }
  }
  if (pid < 0) warn(std::strerror(errno));
}

void Hook::tell(const Facts& facts) {
  std::string message;
  for (const auto& [name, value] : facts) message.append(name + "=" + value).push_back('\0');
  const auto sent =
      ::send(channel_.get(), message.data(), message.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0) warn(std::strerror(errno));
}

void Hook::finish(Signals& signals) {
  shutdown(channel_.get(), SHUT_WR);
  const Deadline give_up = later(BootClock::now(), longest_finish);
  // At its end the other process lets go of its end of the channel.
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

}  // namespace dlock
