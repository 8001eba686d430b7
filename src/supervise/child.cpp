#include "supervise/child.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/error.hpp"
#include "base/process.hpp"
#include "base/wait.hpp"

namespace dlock {

Terminal::Terminal() {
  termios modes{};
  if (in_front() && tcgetpgrp(STDOUT_FILENO) >= 0 && tcgetattr(STDIN_FILENO, &modes) == 0) {
    modes_ = modes;
  }
}

bool Terminal::exists() {
  if (tcgetpgrp(fd()) >= 0) return true;
  opened_ = Fd(open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY));
  return static_cast<bool>(opened_);
}

bool Terminal::in_front() const { return tcgetpgrp(fd()) == getpgrp(); }

void Terminal::reset_modes() const {
  if (modes_ && in_front()) tcsetattr(fd(), TCSANOW, &*modes_);
}

namespace {

constexpr int exec_failed = 127;

/// Whether a child may share this process's memory until it executes: the kernel then copies no
/// page tables, and no page that the parent writes. A sanitizer would take the two for one thread.
constexpr bool may_share_memory = raw_syscall_spares_errno && !sanitized;

constexpr std::size_t child_stack_size = 64 * 1024;

}  // namespace

/// Everything that the child needs between its first instruction and exec. It stays until the child
/// is reaped, because the child may share this memory with the parent, which runs at the same time.
struct Child::ExecData {
  ExecData(const Program& program, const Signals& the_signals, int the_channel, bool is_gated)
      : image(program),
        signals(the_signals),
        hidden_fd(program.hidden_fd),
        start_before(program.start_before),
        channel(the_channel),
        gated(is_gated) {}

  ExecImage image;
  const Signals& signals;
  int hidden_fd;
  Deadline start_before;
  /// An eventfd: the parent's 1 opens the gate before exec, and the child sends errno if exec
  /// fails. Close-on-exec hides it from the command.
  int channel;
  bool gated;
  pid_t parent = getpid();
  std::unique_ptr<std::byte[]> stack;
};

namespace {

long exec_failed_by(std::uint64_t error, int channel) {
  raw_syscall(SYS_write, channel, reinterpret_cast<long>(&error), sizeof error);
  return exec_failed;
}

/// Runs in the child. All calls are async-signal-safe and leave errno unchanged, which may be the
/// parent's. Returns the exit code, unless it executes the command.
long exec_child(Child::ExecData& exec_data) {
  raw_syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have ended before prctl(), or it is in another PID namespace and gets this
  // error. An eventfd adds up, so subtract the 1 that opens the gate.
  if (raw_syscall(SYS_getppid) != exec_data.parent) {
    return exec_failed_by(exec_data.gated ? ESRCH - 1 : ESRCH, exec_data.channel);
  }
  std::uint64_t word = 0;
  if (exec_data.gated && raw_syscall(SYS_read, exec_data.channel, reinterpret_cast<long>(&word),
                                     sizeof word) != sizeof word) {
    return exec_failed;
  }
  if (exec_data.hidden_fd >= 0) raw_syscall(SYS_close, exec_data.hidden_fd);
  exec_data.signals.restore_in_child();
  if (BootClock::now() >= exec_data.start_before) return exec_failed_by(ETIME, exec_data.channel);
  const int error = exec_data.image.execute();
  return exec_failed_by(static_cast<std::uint64_t>(error), exec_data.channel);
}

[[noreturn]] int run_child(void* exec_data) {
  const long code = exec_child(*static_cast<Child::ExecData*>(exec_data));
  raw_syscall(SYS_exit_group, code);
  __builtin_unreachable();
}

/// Like vfork(2), but without the wait: no memory is copied. If the kernel, or an emulator such as
/// qemu, does not support this, fork_child() forks with a copy.
pid_t fork_sharing_memory(Child::ExecData& exec_data) {
  exec_data.stack = std::make_unique_for_overwrite<std::byte[]>(child_stack_size);
  void* const top = exec_data.stack.get() + child_stack_size;
  return clone(run_child, top, CLONE_VM | SIGCHLD, &exec_data);
}

pid_t fork_child(Child::ExecData& exec_data) {
  if (may_share_memory) {
    const pid_t pid = fork_sharing_memory(exec_data);
    if (pid > 0 || errno == EAGAIN || errno == ENOMEM) return pid;
  }
  const pid_t pid = fork();
  if (pid == 0) run_child(&exec_data);
  return pid;
}

}  // namespace

Child::Child(ProcessTree the_tree, Terminal the_terminal, pid_t pid, Fd channel,
             std::unique_ptr<ExecData> exec_data)
    : tree(std::move(the_tree)),
      terminal(std::move(the_terminal)),
      pid_(pid),
      pidfd_(open_pidfd(pid)),
      channel_(std::move(channel)),
      exec_data_(std::move(exec_data)),
      started_at_(BootClock::now()) {}

Child::Child(Child&&) noexcept = default;

Child::~Child() {
  if (reaped_ || !channel_) return;  // without a channel it was moved from
  send(SIGKILL);
  pollfd end{fd(), POLLIN, 0};
  poll(&end, 1, 1000);  // not longer: it may be stuck in the kernel
  waitid(P_PID, static_cast<id_t>(pid_), nullptr, WEXITED | WNOHANG);
}

void Child::send(int signal, bool own_group_has_it) {
  const pid_t own = getpgrp();
  const pid_t moved_to = getpgid(pid_);
  const auto hears = [&](pid_t group) {
    return group == own ? !own_group_has_it : group == moved_to;
  };
  if (hears(moved_to)) kill(pid_, signal);
  tree.signal(signal, [&](pid_t pid) { return pid != pid_ && hears(getpgid(pid)); });
}

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

Child start(const Program& program, Signals& signals, const std::function<void()>& before_exec) {
  Fd channel(eventfd(0, EFD_CLOEXEC));
  if (!channel) throw_errno("cannot start the command: eventfd");
  const bool gated = static_cast<bool>(before_exec);
  Terminal terminal;
  auto exec_data = std::make_unique<Child::ExecData>(program, signals, channel.get(), gated);
  ProcessTree tree;
  signals.hear_all();
  const pid_t pid = fork_child(*exec_data);
  if (pid < 0) throw_errno("cannot start the command: fork");
  const int gate = channel.get();
  Child child(std::move(tree), std::move(terminal), pid, std::move(channel), std::move(exec_data));
  if (gated) {
    before_exec();
    const std::uint64_t open = 1;
    if (write(gate, &open, sizeof open) != sizeof open) throw_errno("cannot start the command");
  }
  return child;
}

}  // namespace dlock
