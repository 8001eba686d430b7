#include "support/process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>

#include "base/error.hpp"
#include "base/process.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"
#include "support/eventually.hpp"

namespace dlock::test {
namespace {

Fd memory_file(const char* name) {
  Fd file(memfd_create(name, MFD_CLOEXEC));
  if (!file) throw_errno("memfd_create");
  return file;
}

/// Several processes write to the file at once and must not overwrite each other: without O_APPEND
/// the kernel does not protect the shared offset of a memory file.
Fd output_file(const char* name) {
  Fd file = memory_file(name);
  if (fcntl(file.get(), F_SETFL, O_APPEND) != 0) throw_errno("O_APPEND");
  return file;
}

std::string contents(const Fd& file) {
  std::string text;
  char block[65536];
  if (!file) return text;
  while (true) {
    const ssize_t n = pread(file.get(), block, sizeof block, static_cast<off_t>(text.size()));
    if (n < 0) throw_errno("pread");
    if (n == 0) return text;
    text.append(block, static_cast<std::size_t>(n));
  }
}

Fd input_file(const std::string& text) {
  if (text.empty()) {
    Fd nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!nothing) throw_errno("/dev/null");
    return nothing;
  }
  Fd file = memory_file("stdin");
  const ssize_t written = write(file.get(), text.data(), text.size());
  if (written != static_cast<ssize_t>(text.size())) throw_errno("write");
  lseek(file.get(), 0, SEEK_SET);
  return file;
}

bool is_kept(std::string_view name, const ProcessOptions& options) {
  if (options.env.contains(std::string(name))) return false;
  for (const auto& gone : options.unset) {
    if (name == gone) return false;
  }
  for (const auto& prefix : options.unset_prefixes) {
    if (name.starts_with(prefix)) return false;
  }
  return true;
}

std::vector<std::string> environment_for(const ProcessOptions& options) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (is_kept(text.substr(0, text.find('=')), options)) all.emplace_back(text);
  }
  for (const auto& [name, value] : options.env) all.push_back(name + "=" + value);
  return all;
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (const auto& text : texts) all.push_back(const_cast<char*>(text.c_str()));
  all.push_back(nullptr);
  return all;
}

/// All data that the child needs between fork and exec. It is made before the fork, as another
/// thread may hold the allocator's lock at that moment.
struct Launch {
  std::vector<char*> argv;
  std::vector<char*> envp;
  const ProcessOptions& options;
  int in;
  int out;
  int err;
  int report;
  pid_t parent;
};

/// Moves `fd` to `to`; a descriptor that is already there only loses close-on-exec.
bool place(int fd, int to) { return fd == to ? fcntl(fd, F_SETFD, 0) == 0 : dup2(fd, to) == to; }

[[noreturn]] void become(const Launch& launch) {
  const ProcessOptions& options = launch.options;
  bool good = options.own_session ? setsid() >= 0 : setpgid(0, 0) == 0;
  if (good && options.die_with_thread) {
    good = prctl(PR_SET_PDEATHSIG, SIGKILL) == 0;
    if (getppid() != launch.parent) _exit(127);
  }
  good = good && (options.cwd.empty() || chdir(options.cwd.c_str()) == 0);
  good = good && place(launch.in, 0) && place(launch.out, 1) && place(launch.err, 2);
  if (good) {
    if (options.before_exec) options.before_exec();
    execvpe(launch.argv[0], launch.argv.data(), launch.envp.data());
  }
  const int cause = errno;
  [[maybe_unused]] const auto told = write(launch.report, &cause, sizeof cause);
  _exit(127);
}

/// The living members of a session or group, without its leader.
std::vector<pid_t> members(pid_t leader, bool by_session) {
  std::vector<pid_t> found;
  for (const pid_t pid : numbers_in("/proc")) {
    const auto stat = stat_of(pid);
    if (pid == leader || !stat || !stat->runs()) continue;
    if ((by_session ? stat->session : stat->group) == leader) found.push_back(pid);
  }
  return found;
}

}  // namespace

Process::Process(const std::vector<std::string>& argv, const ProcessOptions& options)
    : argv_(argv), by_session_(options.own_session), started_(BootClock::now()) {
  const Fd in = options.stdin_fd < 0 ? input_file(options.input) : Fd();
  if (options.stdout_fd < 0) out_ = output_file("stdout");
  if (options.stderr_fd < 0 && !options.merge) err_ = output_file("stderr");
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) < 0) throw_errno("pipe");
  const Fd report_in(ends[0]);
  Fd report_out(ends[1]);
  const auto env = environment_for(options);
  const int out = out_ ? out_.get() : options.stdout_fd;
  const int err = options.stderr_fd >= 0 ? options.stderr_fd : options.merge ? out : err_.get();
  const Launch launch{
      pointers(argv_), pointers(env), options, in ? in.get() : options.stdin_fd, out, err,
      ends[1],         getpid()};
  started_ = BootClock::now();
  pid_ = fork();
  if (pid_ < 0) throw_errno("fork");
  if (pid_ == 0) become(launch);
  report_out.reset();
  pidfd_ = open_pidfd(pid_);
  int cause = 0;
  if (read(report_in.get(), &cause, sizeof cause) == sizeof cause) {
    reap();
    errno = cause;
    throw_errno("executing " + argv_.at(0));
  }
}

Process::~Process() {
  if (!pidfd_) return;
  if (!result_) signal(SIGKILL);
  kill_all();
  if (!result_) reap();
}

void Process::signal(int number) const { send_signal(pidfd_, number); }

void Process::stop() const {
  signal(SIGSTOP);
  siginfo_t stop{};
  if (waitid(P_PID, static_cast<id_t>(pid_), &stop, WSTOPPED | WEXITED | WNOWAIT) < 0) {
    throw_errno("waitid");
  }
}

Result Process::kill_hard() {
  signal(SIGKILL);
  return wait();
}

void Process::kill_all() {
  if (!result_) signal(SIGKILL);
  while (true) {
    // After the reaping another process may get this number and lead a session of it: leave that
    // alive.
    if (result_ && kill(pid_, 0) == 0) return;
    const auto left = members(pid_, by_session_);
    if (left.empty()) return;
    for (const pid_t pid : left) kill(pid, SIGKILL);
    poll_until({}, later(BootClock::now(), milliseconds(1)));
  }
}

bool Process::ended(milliseconds within) const {
  pollfd end{pidfd_.get(), POLLIN, 0};
  return poll_until({&end, 1}, later(BootClock::now(), within)) > 0;
}

bool Process::running() const { return !result_ && !ended(milliseconds(0)); }

void Process::reap() {
  siginfo_t end{};
  bool known = true;
  while (known && waitid(P_PID, static_cast<id_t>(pid_), &end, WEXITED) < 0) {
    // Seen once on Linux 6.18 with a killed server and many other children: the pidfd reported the
    // end, but waitid said ECHILD. The exit code is unknown then.
    known = errno != ECHILD;
    if (known && errno != EINTR) throw_errno("waitid");
  }
  Result result;
  result.duration = BootClock::now() - started_;
  if (known) (end.si_code == CLD_EXITED ? result.exit_code : result.signal) = end.si_status;
  if (!known) std::fprintf(stderr, "no child %d: %s\n", pid_, argv_.at(0).c_str());
  result.out = contents(out_);
  result.err = contents(err_);
  result_ = std::move(result);
}

Result Process::wait(milliseconds within) {
  if (!result_ && !ended(within)) {
    throw Error(ErrorKind::bug, joined(argv_, " ") + " still runs after " +
                                    std::to_string(within.count()) + " ms; it wrote: " + out() +
                                    err());
  }
  if (!result_) reap();
  return *result_;
}

std::string Process::out() const { return contents(out_); }
std::string Process::err() const { return contents(err_); }

Result run(const std::vector<std::string>& argv, const ProcessOptions& options) {
  return Process(argv, options).wait();
}

bool is_alive(pid_t pid) {
  const auto stat = stat_of(pid);
  return stat && stat->runs();
}

bool is_in_state(char state, pid_t pid) {
  const auto stat = stat_of(pid);
  return stat && stat->state == state;
}

std::size_t processes_of_session(pid_t session) {
  std::size_t count = 0;
  for (const pid_t pid : numbers_in("/proc")) {
    const auto stat = stat_of(pid);
    if (stat && stat->session == session) ++count;
  }
  return count;
}

std::size_t thread_count() { return numbers_in("/proc/self/task").size(); }

std::size_t settled_thread_count() {
  pid_t first = 0;
  std::thread([&] { first = gettid(); }).join();
  const std::string joined = "/proc/self/task/" + std::to_string(first);
  eventually([&] { return !std::filesystem::exists(joined); });
  return thread_count();
}

long voluntary_switches(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  const std::string name = "voluntary_ctxt_switches:";
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name)) return std::stol(line.substr(name.size()));
  }
  return -1;
}

bool fall_asleep(const std::vector<pid_t>& pids, milliseconds quiet) {
  const auto switches = [&] {
    std::vector<long> all;
    for (const pid_t pid : pids) all.push_back(voluntary_switches(pid));
    return all;
  };
  return eventually([&] {
    const std::vector<long> before = switches();
    std::this_thread::sleep_for(quiet);
    const bool asleep = std::all_of(pids.begin(), pids.end(), [](pid_t pid) {
      return !is_alive(pid) || is_in_state('S', pid);
    });
    return asleep && switches() == before;
  });
}

}  // namespace dlock::test
