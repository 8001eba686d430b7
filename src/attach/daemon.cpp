#include "attach/daemon.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <syslog.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <future>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "attach/attached_holds.hpp"
#include "attach/release_socket.hpp"
#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/process.hpp"
#include "base/text.hpp"
#include "lock/release.hpp"
#include "supervise/process_tree.hpp"
#include "supervise/signals.hpp"
#include "supervise/supervise.hpp"

namespace dlock {
namespace {

// The messages between the two sides of an AttachDaemon. "lost": a lock was lost, or the daemon is
// releasing or has released the locks. "error " precedes the error's kind (one byte) and its text;
// the daemon has released the locks before.
constexpr char daemon_keeps[] = "keeps";
constexpr char daemon_lost[] = "lost";
constexpr char daemon_error[] = "error ";
constexpr char daemon_commit[] = "commit";
constexpr std::size_t longest_daemon_message = 4096;

/// The next message; empty if the other side has ended.
std::string receive(int fd) {
  char text[longest_daemon_message];
  auto got = recv(fd, text, sizeof text, 0);
  // If the other side ended without reading all, this error comes before its last message.
  if (got < 0 && errno == ECONNRESET) got = recv(fd, text, sizeof text, 0);
  return {text, got > 0 ? static_cast<std::size_t>(got) : 0};
}

/// Writes an error to the system log; returns after 200 ms even if the logger accepts nothing.
void write_system_log(const std::string& text) {
  constexpr milliseconds longest_wait{200};
  std::packaged_task<void()> write([text] {
    openlog("dlock", LOG_PID, LOG_USER);
    syslog(LOG_ERR, "%s", text.c_str());
  });
  const auto written = write.get_future();
  try {
    std::thread(std::move(write)).detach();
    written.wait_for(longest_wait);
  } catch (const std::system_error&) {
    // The host cannot start a thread; the text was already sent to the script's stderr.
  }
}

/// Detaches a forked child that outlives its parent. It gets its own session without a terminal,
/// stdin, stdout and stderr at /dev/null, and `/` as its directory. It closes the caller's
/// descriptors, so that no pipe, lock or file system waits for it, and keeps those that dlock
/// opened. Throws Error{host_refused}.
void detach_from_caller() {
  if (setsid() < 0) throw_errno("setsid");
  prctl(PR_SET_NAME, keeper_name);
  if (chdir("/") < 0) throw_errno("chdir to /");
  const Fd nothing(open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!nothing) throw_errno("cannot open /dev/null");
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (dup2(nothing.get(), fd) < 0) throw_errno("dup2");
  }
  for (const int fd : numbers_in("/proc/self/fd")) {
    // dlock opens its own descriptors close-on-exec. Inherited ones cannot have that flag: the exec
    // of dlock would have closed them.
    const bool is_the_callers = (fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0;
    if (fd > STDERR_FILENO && is_the_callers) close(fd);
  }
}

/// How long the daemon repeats releases after the script's end: others may wait for the locks.
constexpr milliseconds time_after_script{30'000};

class AttachDaemonProcess {
 public:
  AttachDaemonProcess(StorePtr store, const std::vector<Held>& held, const WatchedProcess& script,
                      int loss_signal, Fd channel)
      : store_(std::move(store)),
        held_(held),
        script_(script),
        tree_(script.id()),
        loss_signal_(loss_signal),
        channel_(std::move(channel)) {}

  void run();

 private:
  bool take_over();
  /// Keeps the locks until the script ends or no lock is left. If keep() returns on trial, it has
  /// released the locks.
  void keep();
  void end(milliseconds time);
  /// Takes the parent's commit; returns false if the parent has ended instead.
  bool hear_parent();
  /// Whether the script gets SIGKILL after its grace, or as much time as it takes.
  enum class Stop { in_time, by_itself };
  void stop_script(const std::string& why, Stop how);
  std::string send_stop_signal(const std::string& name, Stop how);
  bool signal_script(int signal);
  void kill_script();
  void see_script_end();
  void release_all_holds() { release_all(*store_, held_, time_to_release); }
  void say(const std::string& text) const {
    send(channel_.get(), text.data(), text.size(), MSG_NOSIGNAL);
  }
  bool on_trial() const { return static_cast<bool>(channel_); }

  /// The first member, so destroyed last: `dlock release` waits until the socket closes, and the
  /// destructor of the store must have run by then.
  std::optional<ReleaseSocket> socket_;
  StorePtr store_;
  const std::vector<Held>& held_;
  const WatchedProcess& script_;
  ProcessTree tree_;
  const int loss_signal_;
  Fd channel_;
  std::optional<AttachedHolds> holds_;
  bool signalled_ = false;
  Deadline kill_at_ = never;
};

void AttachDaemonProcess::run() {
  if (!take_over()) return;
  say(daemon_keeps);
  try {
    keep();
    if (on_trial()) say(daemon_lost);
  } catch (const std::exception& error) {
    // The script may still run. Without a daemon, a lock with a lease expires, and a lock without
    // one lasts until the script ends.
    if (on_trial()) return end(time_to_release);
    stop_script(std::string("the attach daemon failed: ") + error.what(), Stop::in_time);
    see_script_end();
  }
}

bool AttachDaemonProcess::take_over() {
  try {
    if (auto* here = store_->host_view()) here->leave_to(getpid());
    detach_from_caller();
    const bool bound = std::all_of(held_.begin(), held_.end(), [this](const Held& held) {
      return needs_renewal(*store_, held.claim) ||
             store_->host_view()->live_with(held.claim, script_.pid());
    });
    if (!bound) {
      release_all_holds();
      say(daemon_lost);
      return false;
    }
    socket_.emplace(held_.front().claim.token);
    holds_.emplace(*store_, held_);
    return true;
  } catch (const Error& error) {
    release_all_holds();
    say(std::string(daemon_error) + static_cast<char>(error.kind()) + error.what());
  }
  return false;
}

void AttachDaemonProcess::keep() {
  while (!holds_->empty()) {
    pollfd fds[] = {{script_.fd(), POLLIN, 0},
                    {holds_->fd(), POLLIN, 0},
                    {channel_.get(), POLLIN, 0},
                    {socket_->fd(), POLLIN, 0}};
    poll_until(fds, std::min({holds_->look_by(), socket_->open_by(), kill_at_}));
    if (script_.ended()) {
      see_script_end();
      return end(time_after_script);
    }
    if (on_trial() && readable(channel_.get()) && !hear_parent()) {
      return holds_->release(time_to_release);
    }
    // Serve clients before look(), which would otherwise report a lock as lost that a client is
    // about to release.
    socket_->serve(*holds_);
    while (const auto loss = holds_->look()) {
      if (on_trial()) return end(time_to_release);
      stop_script(*loss, Stop::in_time);
    }
    if (const auto request = holds_->take_stop_request()) {
      stop_script(escaped(request->key.text) + ": " + stop_asked_by_text(request->by),
                  Stop::by_itself);
    }
    if (!holds_->in_trouble()) {
      signalled_ = false;
      kill_at_ = never;
    }
    if (BootClock::now() >= kill_at_) kill_script();
  }
  if (kill_at_ == never) return;
  // A `dlock release` of a lost lock must not wait until this process ends.
  socket_.reset();
  see_script_end();
}

/// The daemon reports the loss before it releases: if a slow release came first, the parent would
/// take the daemon for stopped and the locks for kept.
void AttachDaemonProcess::end(milliseconds time) {
  if (on_trial()) say(daemon_lost);
  holds_->release(time);
}

bool AttachDaemonProcess::hear_parent() {
  if (receive(channel_.get()).empty()) return false;
  say(daemon_keeps);
  channel_.reset();
  return true;
}

/// Signals the script, unless it got that signal before, and tells it why on its stderr.
void AttachDaemonProcess::stop_script(const std::string& why, Stop how) {
  // Read the script's name and open its stderr before the signal: the signal may end the script,
  // and another process may then get its pid.
  const std::string name = command_name(script_.pid());
  const std::string path = "/proc/" + std::to_string(script_.pid()) + "/fd/2";
  constexpr int flags = O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  // Duplicate the script's own descriptor if the kernel permits it. A socket cannot be opened by
  // its path, and in a file the script's next output would overwrite what another descriptor wrote.
  Fd script_stderr(static_cast<int>(syscall(SYS_pidfd_getfd, script_.fd(), STDERR_FILENO, 0)));
  if (!script_stderr && !name.empty()) script_stderr = Fd(open(path.c_str(), flags));
  pollfd reader[] = {{script_stderr.get(), POLLOUT, 0}};
  const bool is_the_scripts = !script_.ended();
  const std::string told = why + (signalled_ ? "" : send_stop_signal(escaped(name), how));
  const std::string line = "dlock: " + told + "\n";
  // Write nothing if the write would block.
  const bool is_writable = is_the_scripts && poll_until(reader, {}) > 0;
  if (is_writable) (void)!write(script_stderr.get(), line.data(), line.size());
  write_system_log(told);
}

std::string AttachDaemonProcess::send_stop_signal(const std::string& name, Stop how) {
  tree_ = ProcessTree(script_.id());
  const bool sent = signal_script(loss_signal_);
  std::string text = std::string(sent ? "; sent" : "; could not send") + " signal " +
                     signal_name(loss_signal_) + " to process " + std::to_string(script_.pid()) +
                     " (" + name + ")" + (tree_.has_descendants() ? " and its descendants" : "");
  if (how == Stop::by_itself) return text;
  signalled_ = true;
  const milliseconds ttl = held_.front().claim.ttl;
  auto grace = usual_grace(ttl);
  if (holds_) grace = std::min(grace, left_until(holds_->safe_until()) - kill_cost(ttl));
  kill_at_ = later(BootClock::now(), grace);
  return text + "; SIGKILL follows in " + human_duration(std::max(grace, milliseconds(0)));
}

/// Signals the script and its descendants; returns whether the script itself got the signal.
bool AttachDaemonProcess::signal_script(int signal) {
  bool sent = false;
  tree_.signal(signal, [&](pid_t pid) {
    if (pid != script_.pid()) return true;
    sent = script_.send(signal);
    return false;
  });
  return sent;
}

void AttachDaemonProcess::kill_script() {
  kill_at_ = never;
  signal_script(SIGKILL);
  tree_.await_end(later(BootClock::now(), time_to_release));
}

/// Waits for the end of a signalled script, and kills it after its grace period, so that it does
/// not run beside the next holder.
void AttachDaemonProcess::see_script_end() {
  if (kill_at_ == never) return;
  tree_.await_end(kill_at_);
  kill_script();
}

/// Runs the daemon in the forked child, and never returns.
[[noreturn]] void run_attach_daemon(StorePtr store, const std::vector<Held>& held,
                                    const WatchedProcess& script, int loss_signal, Fd channel) {
  try {
    AttachDaemonProcess(std::move(store), held, script, loss_signal, std::move(channel)).run();
  } catch (...) {
    // The parent may have ended, so there is no place to report this.
  }
  _exit(0);
}

}  // namespace

WatchedProcess::WatchedProcess(pid_t pid) : pidfd_(open_pidfd(pid)) {
  const std::string name = "process " + std::to_string(pid);
  const auto refuse = [](const std::string& why) { throw Error(ErrorKind::usage, why); };
  if (pid == getpid()) refuse(name + " is dlock itself, which cannot wait for its own end");
  if (!pidfd_) {
    // For a thread that is not the first of its process, the kernel gives EINVAL or ENOENT.
    if (errno == ESRCH || errno == EINVAL || errno == ENOENT) refuse("there is no " + name);
    throw_errno("cannot watch " + name + ": pidfd_open");
  }
  id_ = process_now(pid);
  if (!send(0) && errno == EPERM) {
    refuse(name + " is another user's, and could not be told of a loss");
  }
  if (ended()) refuse("there is no " + name + " any more");
}

bool WatchedProcess::send(int signal) const { return send_signal(pidfd_, signal); }

AttachDaemon::AttachDaemon(StorePtr& store, const std::vector<Held>& held,
                           const WatchedProcess& script, int loss_signal)
    : locks_(held.size()) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) throw_errno("socketpair");
  channel_.reset(ends[0]);
  Fd other(ends[1]);
  store->suspend(Suspension::fork);
  const pid_t pid = fork();
  if (pid < 0) throw_errno("cannot start a process to keep the lock: fork");
  if (pid > 0) {
    if (auto* here = store->host_view()) here->leave_to(pid);
    return;
  }
  channel_.reset();
  run_attach_daemon(std::move(store), held, script, loss_signal, std::move(other));
}

AttachDaemon::Start AttachDaemon::await(int cancel_fd) {
  pollfd fds[] = {{channel_.get(), POLLIN, 0}, {cancel_fd, POLLIN, 0}};
  poll_until(fds, never);
  if (fds[0].revents == 0) return Start::interrupted;
  const std::string message = receive(channel_.get());
  if (message == daemon_keeps) return Start::keeps;
  if (message == daemon_lost) return Start::lost;
  const std::size_t kind = sizeof daemon_error - 1;
  if (message.size() > kind && message.starts_with(daemon_error)) {
    throw Error(static_cast<ErrorKind>(message[kind]), message.substr(kind + 1));
  }
  ended_too_soon();
}

void AttachDaemon::ended_too_soon() {
  throw Error(ErrorKind::host_refused,
              "the attach daemon ended too soon; the lock ends with its lease, or with the script");
}

bool AttachDaemon::commit() {
  constexpr milliseconds time_to_answer{2000};
  const std::string word = daemon_commit;
  send(channel_.get(), word.data(), word.size(), MSG_NOSIGNAL);
  pollfd answer[] = {{channel_.get(), POLLIN, 0}};
  // A stopped daemon will read the commit when it is continued, so the locks are kept.
  if (poll_until(answer, later(BootClock::now(), time_to_answer)) == 0) return true;
  const std::string message = receive(channel_.get());
  if (message.empty()) ended_too_soon();
  return message == daemon_keeps;
}

void AttachDaemon::dismiss() {
  constexpr milliseconds time_to_end{1000};
  shutdown(channel_.get(), SHUT_WR);
  // The longest time that release_all() may take.
  const auto for_all = time_to_release * static_cast<int>(locks_ + 1);
  const Deadline until = later(BootClock::now(), for_all + time_to_end);
  pollfd fds[] = {{channel_.get(), POLLIN, 0}};
  while (poll_until(fds, until) > 0 && !receive(channel_.get()).empty()) {
  }
}

}  // namespace dlock
