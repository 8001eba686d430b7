#include "supervise/child.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.hpp"
#include "base/process.hpp"
#include "base/wait.hpp"

namespace dlock {
namespace {

constexpr int exec_failed = 127;

/// Whether a child may share this process's memory until it executes: the kernel then copies no
/// page tables, and no page that the parent writes. A sanitizer would take the two for one thread.
constexpr bool may_share_memory = raw_syscall_spares_errno && !DLOCK_SANITIZED;

constexpr std::size_t child_stack_size = 64 * 1024;

/// The search path of the C library if PATH is not set.
constexpr std::string_view usual_path = "/bin:/usr/bin";

bool is_replaced(const Program& program, std::string_view entry) {
  const auto name = entry.substr(0, entry.find('='));
  for (const auto& added : program.environment) {
    if (added.first == name) return true;
  }
  return false;
}

std::vector<std::string> additions_of(const Program& program) {
  std::vector<std::string> all;
  for (const auto& [name, value] : program.environment) {
    if (value) all.push_back(name + "=" + *value);
  }
  return all;
}

/// The paths of a program. An empty part of PATH means the current directory; paths_of() skips a
/// part that is too long for a path.
std::vector<std::string> paths_of(const std::string& name) {
  if (name.empty() || name.find('/') != std::string::npos) return {name};
  const char* set = std::getenv("PATH");  // NOLINT(concurrency-mt-unsafe)
  std::string_view left = set != nullptr ? std::string_view(set) : usual_path;
  std::vector<std::string> all;
  while (true) {
    const auto end = left.find(':');
    const auto folder = left.substr(0, end);
    if (folder.size() <= PATH_MAX) {
      all.push_back(folder.empty() ? name : std::string(folder) + "/" + name);
    }
    if (end == std::string_view::npos) return all;
    left.remove_prefix(end + 1);
  }
}

void point_to(const std::vector<std::string>& texts, std::vector<const char*>& pointers) {
  for (const auto& text : texts) pointers.push_back(text.c_str());
  pointers.push_back(nullptr);
}

int execve_error(const char* path, const std::vector<const char*>& argv,
                 const std::vector<const char*>& envp) {
  return static_cast<int>(-raw_syscall(SYS_execve, reinterpret_cast<long>(path),
                                       reinterpret_cast<long>(argv.data()),
                                       reinterpret_cast<long>(envp.data())));
}

/// Whether the program may still be in a later part of PATH.
bool looks_on_after(int error) {
  return error == ENOENT || error == ENOTDIR || error == EACCES || error == ESTALE ||
         error == ENODEV || error == ETIMEDOUT;
}

}  // namespace

ExecImage::ExecImage(const Program& program)
    : arguments_(program.argv),
      additions_(additions_of(program)),
      paths_(paths_of(arguments_.at(0))),
      shell_argv_{"/bin/sh", nullptr} {
  point_to(arguments_, argv_);
  shell_argv_.insert(shell_argv_.end(), argv_.begin() + 1, argv_.end());
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (!is_replaced(program, *entry)) envp_.push_back(*entry);
  }
  point_to(additions_, envp_);
}

int ExecImage::try_to_execute(const std::string& path) {
  const int error = execve_error(path.c_str(), argv_, envp_);
  if (error != ENOEXEC) return error;
  shell_argv_[1] = path.c_str();
  return execve_error("/bin/sh", shell_argv_, envp_);
}

int ExecImage::execute() {
  int error = ENOENT;
  bool forbidden = false;
  for (const auto& path : paths_) {
    error = try_to_execute(path);
    if (!looks_on_after(error)) return error;
    forbidden = forbidden || error == EACCES;
  }
  return forbidden ? EACCES : error;
}

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

/// Runs in the child. All calls are async-signal-safe, and leave errno unchanged because it may be
/// the parent's. Returns the exit code, unless it executes the command.
long exec_child(Child::ExecData& exec_data) {
  raw_syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL);
  // The parent has ended before prctl(), or it is in another PID namespace: dlock reports ESRCH for
  // both. An eventfd adds up, so subtract the 1 that opens the gate.
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

Child::Child(const Program& program, Signals& signals, bool gated)
    : channel_(eventfd(0, EFD_CLOEXEC)) {
  if (!channel_) throw_errno("cannot start the command: eventfd");
  exec_data_ = std::make_unique<ExecData>(program, signals, channel_.get(), gated);
  signals.hear_all();
  pid_ = fork_child(*exec_data_);
  if (pid_ < 0) throw_errno("cannot start the command: fork");
  pidfd_ = open_pidfd(pid_);
  started_at_ = BootClock::now();
}

/// If `before_exec` throws, the destructor kills the child.
Child::Child(const Program& program, Signals& signals, const std::function<void()>& before_exec)
    : Child(program, signals, static_cast<bool>(before_exec)) {
  if (!before_exec) return;
  before_exec();
  const std::uint64_t open = 1;
  if (write(channel_.get(), &open, sizeof open) != sizeof open) {
    throw_errno("cannot start the command");
  }
}

Child::~Child() {
  if (reaped_) return;
  send(SIGKILL);
  pollfd end{fd(), POLLIN, 0};
  poll(&end, 1, 1000);  // not longer: the child may be stuck in the kernel
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

}  // namespace dlock
