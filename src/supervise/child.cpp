#include "supervise/child.hpp"

#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <string_view>

#include "base/error.hpp"
#include "base/process.hpp"
#include "base/wait.hpp"

namespace dlock {

namespace {

constexpr int exec_failed = 127;

/// argv and envp as execvpe wants them, made before the fork: afterwards nothing may allocate.
class Image {
 public:
  explicit Image(const Program& program) {
    for (const auto& argument : program.argv) arguments_.push_back(argument.c_str());
    arguments_.push_back(nullptr);
    texts_.reserve(program.environment.size());
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
      if (!replaced(program, *entry)) environment_.push_back(*entry);
    }
    for (const auto& [name, value] : program.environment) {
      if (value) environment_.push_back(texts_.emplace_back(name + "=" + *value).c_str());
    }
    environment_.push_back(nullptr);
  }

  void execute() const {
    execvpe(arguments_[0], const_cast<char**>(arguments_.data()),
            const_cast<char**>(environment_.data()));
  }

 private:
  static bool replaced(const Program& program, std::string_view entry) {
    const auto name = entry.substr(0, entry.find('='));
    return std::any_of(program.environment.begin(), program.environment.end(),
                       [&](const auto& added) { return added.first == name; });
  }

  std::vector<std::string> texts_;
  std::vector<const char*> arguments_;
  std::vector<const char*> environment_;
};

/// The channel is an eventfd: the parent's 1 opens the gate before exec, errno comes back if exec
/// fails, and close-on-exec leaves the command without it. Only async-signal-safe calls here.
[[noreturn]] void become(const Image& image, const Program& program, const Signals& signals,
                         const Terminal& terminal, int channel, bool gated, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(exec_failed);  // it died before we asked to die with it
  if (!terminal.shares_group()) setpgid(0, 0);
  terminal.take_in_child();
  std::uint64_t word = 0;
  if (gated && read(channel, &word, sizeof word) != sizeof word) _exit(exec_failed);
  if (program.hidden_fd >= 0) close(program.hidden_fd);
  signals.restore_in_child();
  errno = ETIME;
  if (BootClock::now() < program.start_before) image.execute();
  word = static_cast<std::uint64_t>(errno);
  [[maybe_unused]] const auto told = write(channel, &word, sizeof word);
  _exit(exec_failed);
}

}  // namespace

Child::Child(ProcessTree the_tree, Terminal the_terminal, pid_t pid, Fd channel)
    : tree(std::move(the_tree)),
      terminal(std::move(the_terminal)),
      pid_(pid),
      group_(terminal.shares_group() ? getpgrp() : pid),
      pidfd_(open_pidfd(pid)),
      channel_(std::move(channel)),
      started_at_(BootClock::now()) {
  // Here and in the child, as either may run first; fails once the child has executed.
  if (!terminal.shares_group()) setpgid(pid_, pid_);
  terminal.forked(group_);
}

Child::Child(Child&& other) noexcept
    : tree(std::move(other.tree)),
      terminal(std::move(other.terminal)),
      pid_(other.pid_),
      group_(other.group_),
      pidfd_(std::move(other.pidfd_)),
      channel_(std::move(other.channel_)),
      started_at_(other.started_at_),
      reaped_(std::exchange(other.reaped_, true)) {}

Child::~Child() {
  if (reaped_) return;
  send(SIGKILL);
  pollfd end{fd(), POLLIN, 0};
  poll(&end, 1, 1000);  // no longer: it may be stuck in the kernel
  waitid(P_PID, static_cast<id_t>(pid_), nullptr, WEXITED | WNOHANG);
  terminal.take_back();
}

void Child::send(int signal) const { kill(shares_group() ? pid_ : -group_, signal); }

std::optional<int> Child::stopped() const {
  siginfo_t change{};
  if (waitid(P_PID, static_cast<id_t>(pid_), &change, WSTOPPED | WNOHANG) < 0) return std::nullopt;
  if (change.si_pid == 0) return std::nullopt;
  return change.si_status;
}

bool Child::ended() const {
  siginfo_t end{};
  waitid(P_PID, static_cast<id_t>(pid_), &end, WEXITED | WNOHANG | WNOWAIT);
  return end.si_pid != 0;
}

std::optional<ChildEnd> Child::reap() {
  siginfo_t end{};
  waitid(P_PID, static_cast<id_t>(pid_), &end, WEXITED | WNOHANG);
  if (end.si_pid == 0) return std::nullopt;
  reaped_ = true;
  if (end.si_code != CLD_EXITED) return ChildEnd{{}, end.si_status, {}};
  if (end.si_status == exec_failed) {
    if (const auto error = exec_error()) return ChildEnd{{}, {}, error};
  }
  return ChildEnd{end.si_status, {}, {}};
}

std::optional<int> Child::exec_error() const {
  std::uint64_t error = 0;
  if (!readable(channel_.get())) return std::nullopt;
  if (read(channel_.get(), &error, sizeof error) != sizeof error) return std::nullopt;
  return static_cast<int>(error);
}

Child start(const Program& program, Signals& signals,
            const std::function<void(pid_t)>& before_exec) {
  const Image image(program);
  const bool gated = static_cast<bool>(before_exec);
  Fd channel(eventfd(0, EFD_CLOEXEC));
  if (!channel) throw_errno("cannot start the command: eventfd");
  Terminal terminal;
  ProcessTree tree;
  signals.hear_all();
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) throw_errno("cannot start the command: fork");
  if (pid == 0) {
    become(image, program, signals, terminal, channel.get(), gated, parent);
  }
  const int gate = channel.get();
  Child child(std::move(tree), std::move(terminal), pid, std::move(channel));
  if (gated) {
    before_exec(child.group());
    const std::uint64_t open = 1;
    if (write(gate, &open, sizeof open) != sizeof open) throw_errno("cannot start the command");
  }
  return child;
}

}  // namespace dlock
