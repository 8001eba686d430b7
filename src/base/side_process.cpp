#include "base/side_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <limits>

#include "base/error.hpp"
#include "base/process.hpp"
#include "base/wait.hpp"

namespace dlock {
namespace {

constexpr int channel_number = 3;
constexpr int not_executed = 127;

}  // namespace

SideProcess::SideProcess(const char* name, const std::function<void(SideCaller&)>& work) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) throw_errno("socketpair");
  channel = Fd(ends[0]);
  const Fd its_end(ends[1]);
  pid_ = fork();
  if (pid_ < 0) throw_errno("fork");
  if (pid_ > 0) return;
  try {
    channel.reset();
    SideCaller caller(name, its_end.get());
    work(caller);
    _exit(0);
  } catch (...) {
    _exit(1);  // never return into dlock's own code
  }
}

SideProcess::~SideProcess() {
  constexpr int usual_end_ms = 100;
  channel.reset();
  const Fd end = open_pidfd(pid_);
  pollfd ended{end.get(), POLLIN, 0};
  if (end) poll(&ended, 1, usual_end_ms);
  waitpid(pid_, nullptr, WNOHANG);
}

SideCaller::SideCaller(const char* name, int channel) {
  setpgid(0, 0);
  prctl(PR_SET_NAME, name);
  // This process must survive a signal to the whole service or session (systemd's SIGTERM), because
  // it still has to report dlock's end. SIGPIPE comes from a closed stderr.
  for (std::size_t i = 0; i < std::size(outlived); ++i) {
    struct sigaction ignored {};
    ignored.sa_handler = SIG_IGN;
    sigaction(outlived[i], &ignored, &on_entry_[i]);
  }
  // This process and its calls are in the background of the terminal: under `stty tostop` their
  // output would stop them. With the signal blocked they may write.
  sigset_t terminal_output;
  sigemptyset(&terminal_output);
  sigaddset(&terminal_output, SIGTTOU);
  sigprocmask(SIG_BLOCK, &terminal_output, nullptr);
  // If SIGCHLD were ignored, the kernel would reap a call before its status is read.
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &standard, &chld_on_entry_);
  // A process that a call leaves behind must not become dlock's child, because dlock would count it
  // among COMMAND's.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  dup2(nothing, STDIN_FILENO);
  dup2(nothing, STDOUT_FILENO);
  if (channel == channel_number) {
    fcntl(channel, F_SETFD, FD_CLOEXEC);
  } else {
    dup3(channel, channel_number, O_CLOEXEC);
  }
  close_fds(channel_number + 1, std::numeric_limits<int>::max());
}

std::optional<std::string> SideCaller::next() const {
  char first = 0;
  const auto length = recv(channel_number, &first, 1, MSG_PEEK | MSG_TRUNC);
  if (length <= 0) return std::nullopt;
  std::string message(static_cast<std::size_t>(length), '\0');
  recv(channel_number, message.data(), message.size(), 0);
  return message;
}

void SideCaller::reply(const std::string& message) const {
  ::send(channel_number, message.data(), message.size(), MSG_NOSIGNAL);
}

std::optional<int> SideCaller::call(const std::string& command, std::chrono::seconds longest,
                                    const std::function<void()>& prepare) {
  while (waitpid(-1, nullptr, WNOHANG) > 0) {
  }
  const pid_t pid = fork();
  if (pid < 0) throw_errno("fork");
  if (pid == 0) become(command, prepare);
  setpgid(pid, pid);  // parent and child both, because either may run first
  const bool ended = await(pid, open_pidfd(pid), longest);
  if (!ended) kill(-pid, SIGKILL);
  int status = 0;
  waitpid(pid, &status, 0);
  return ended ? std::optional(status) : std::nullopt;
}

/// Whether the call ended in time. If `end` is not open (before Linux 5.3, or if a sandbox refuses
/// pidfd_open(2)), this function looks every few milliseconds.
bool SideCaller::await(pid_t pid, const Fd& end, std::chrono::seconds longest) {
  constexpr milliseconds look_again{20};
  const Deadline by = later(BootClock::now(), longest);
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

void SideCaller::become(const std::string& command, const std::function<void()>& prepare) const {
  setpgid(0, 0);
  for (std::size_t i = 0; i < std::size(outlived); ++i) {
    sigaction(outlived[i], &on_entry_[i], nullptr);
  }
  sigaction(SIGCHLD, &chld_on_entry_, nullptr);
  prepare();
  execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
  _exit(not_executed);
}

std::string end_of_call(int status) {
  if (WIFEXITED(status)) return "exited with " + std::to_string(WEXITSTATUS(status));
  return "died of signal " + signal_name(WTERMSIG(status));
}

}  // namespace dlock
