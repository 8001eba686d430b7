#include "attach/daemon.hpp"

#include <fcntl.h>
#include <paths.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <syslog.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <deque>
#include <optional>
#include <string>

#include "attach/attached_holds.hpp"
#include "attach/release_socket.hpp"
#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/fd.hpp"
#include "base/process.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"
#include "lock/release.hpp"
#include "supervise/background.hpp"
#include "supervise/process_tree.hpp"
#include "supervise/signals.hpp"
#include "supervise/supervise.hpp"

namespace dlock {
namespace {

constexpr timeval logger_timeout{0, 200'000};

/// As glibc writes it: `<11>Nov  6 08:15:30 dlock[42]: TEXT`.
std::string syslog_record(const std::string& text) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char stamp[32];
  // The month in English whatever the locale is: dlock never sets one.
  const auto length = std::strftime(stamp, sizeof stamp, "%b %e %H:%M:%S", &local);
  return "<" + std::to_string(LOG_USER | LOG_ERR) + ">" + std::string(stamp, length) + " dlock[" +
         std::to_string(getpid()) + "]: " + text;
}

/// Writes an error to the system log as syslog(3) does, but drops it if the logger accepts nothing
/// for 200 ms: the attach daemon, which calls it, must not block. `text` is one line and already
/// escaped.
void write_system_log(const std::string& text) {
  const std::string record = syslog_record(text);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::string(_PATH_LOG).copy(name.sun_path, sizeof name.sun_path - 1);
  // Some loggers listen for streams, in which a NUL ends a record.
  for (const int type : {SOCK_DGRAM, SOCK_STREAM}) {
    const Fd log(socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
    setsockopt(log.get(), SOL_SOCKET, SO_SNDTIMEO, &logger_timeout, sizeof logger_timeout);
    if (connect(log.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0) continue;
    send(log.get(), record.c_str(), record.size() + (type == SOCK_STREAM ? 1 : 0), MSG_NOSIGNAL);
    return;
  }
}

/// Every process of a user runs some program.
bool belongs_to_kernel(pid_t pid) {
  const std::string exe = "/proc/" + std::to_string(pid) + "/exe";
  char target = 0;
  return readlink(exe.c_str(), &target, 1) < 0 && errno == ENOENT;
}

}  // namespace

WatchedProcess::WatchedProcess(pid_t pid) : pid_(pid) {
  const std::string name = "process " + std::to_string(pid);
  const auto refuse = [](const std::string& why) { throw Error(ErrorKind::usage, why); };
  if (pid == getpid()) refuse(name + " is dlock itself, which cannot wait for its own end");
  pidfd_ = open_pidfd(pid);
  if (!pidfd_) {
    // A thread's number is one of the kernel's, but none of a process.
    if (errno == ESRCH || errno == EINVAL || errno == ENOENT) refuse("there is no " + name);
    throw_errno("cannot watch " + name + ": pidfd_open");
  }
  if (!send(0) && errno == EPERM) {
    refuse(name + " is another user's, and could not be told of a loss");
  }
  if (ended()) refuse("there is no " + name + " any more");
  if (belongs_to_kernel(pid) && !ended()) refuse(name + " is a thread of the kernel");
}

bool WatchedProcess::send(int signal) const { return send_signal(pidfd_, signal); }

namespace {

/// Who has gone needs nothing, but others may wait for the lock.
constexpr milliseconds time_to_release{30'000};

class AttachDaemonProcess {
 public:
  AttachDaemonProcess(StorePtr store, const std::vector<Held>& held, const WatchedProcess& script,
                      int loss_signal, Fd channel)
      : store_(std::move(store)),
        held_(held),
        script_(script),
        loss_signal_(loss_signal),
        channel_(std::move(channel)) {}

  void live();

 private:
  bool take_over();
  bool bind_to_script();
  /// On trial it returns with the locks given back.
  void keep();
  void end(milliseconds time);
  /// False if the one who forked us has gone without a commit.
  bool hear_parent();
  void tell_loss(const std::string& text);
  std::string stop_script(const std::string& name);
  void find_descendants();
  void find_below(const WatchedProcess& root);
  bool signal_script(int signal) const;
  void kill_script();
  void await_script(Deadline until) const;
  void see_script_end();
  void give_all_back() { release_all(*store_, held_, time_to_give_back); }
  void say(const std::string& text) const {
    send(channel_.get(), text.data(), text.size(), MSG_NOSIGNAL);
  }
  bool on_trial() const { return static_cast<bool>(channel_); }

  /// It ends last, for a release waits for that: by then nothing of the store is left.
  std::optional<ReleaseSocket> door_;
  StorePtr store_;
  const std::vector<Held>& held_;
  const WatchedProcess& script_;
  const int loss_signal_;
  Fd channel_;
  std::optional<AttachedHolds> holds_;
  bool signalled_ = false;
  /// Found below the script when it was signalled; once it has ended they no longer are.
  std::deque<WatchedProcess> descendants_;
  Deadline kill_at_ = never;
};

void AttachDaemonProcess::live() {
  if (!take_over()) return;
  say(daemon_keeps);
  try {
    keep();
    if (on_trial()) say(daemon_lost);
  } catch (const std::exception& error) {
    // The script may be at work: without a daemon its locks end with their leases, or, where they
    // have none, with the script.
    if (on_trial()) return end(time_to_give_back);
    tell_loss(std::string("the attach daemon failed: ") + error.what());
    see_script_end();
  }
}

bool AttachDaemonProcess::take_over() {
  try {
    if (auto* here = store_->host_view()) here->leave_to(getpid());
    let_go_of_caller();
    if (!bind_to_script()) {
      give_all_back();
      say(daemon_lost);
      return false;
    }
    door_.emplace(held_.front().claim.token);
    holds_.emplace(*store_, held_);
    return true;
  } catch (const Error& error) {
    give_all_back();
    say(std::string(daemon_error) + static_cast<char>(error.kind()) + error.what());
  }
  return false;
}

bool AttachDaemonProcess::bind_to_script() {
  return std::all_of(held_.begin(), held_.end(), [this](const Held& held) {
    return needs_renewal(*store_, held.claim) ||
           store_->host_view()->live_with(held.claim, script_.pid());
  });
}

void AttachDaemonProcess::keep() {
  while (!holds_->empty()) {
    std::vector<pollfd> fds{
        {script_.fd(), POLLIN, 0}, {holds_->fd(), POLLIN, 0}, {channel_.get(), POLLIN, 0}};
    door_->add_to(fds);
    poll_until(fds, std::min({holds_->look_by(), door_->open_by(), kill_at_}));
    if (script_.ended()) {
      see_script_end();
      return end(time_to_release);
    }
    if (on_trial() && readable(channel_.get()) && !hear_parent()) {
      return holds_->give_back(time_to_give_back);
    }
    // Before the look: what a visitor is about to release is no loss.
    door_->serve(*holds_);
    while (const auto loss = holds_->look()) {
      if (on_trial()) return end(time_to_give_back);
      tell_loss(*loss);
    }
    if (!holds_->in_trouble()) {
      signalled_ = false;
      kill_at_ = never;
    }
    if (BootClock::now() >= kill_at_) kill_script();
  }
  if (kill_at_ == never) return;
  // The script may release what it has lost, and waits for nobody.
  door_.reset();
  see_script_end();
}

/// The daemon reports the loss before it releases: the parent would take one that is slow to
/// release for one that is stopped, and the locks for kept.
void AttachDaemonProcess::end(milliseconds time) {
  if (on_trial()) say(daemon_lost);
  holds_->give_back(time);
}

bool AttachDaemonProcess::hear_parent() {
  char word[longest_daemon_message];
  const auto got = recv(channel_.get(), word, sizeof word, 0);
  if (got <= 0) return false;
  say(daemon_keeps);
  channel_.reset();
  return true;
}

void AttachDaemonProcess::tell_loss(const std::string& text) {
  // The signal may end it before anybody could ask for its name, or open its stderr. Once it has
  // ended, its number may be another's.
  const std::string name = command_name(script_.pid());
  const std::string path = "/proc/" + std::to_string(script_.pid()) + "/fd/2";
  constexpr int flags = O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  // The script's own descriptor, if the kernel gives it: it may be a socket, or a file in which the
  // script's next words would overwrite what another descriptor has added.
  Fd script_stderr(static_cast<int>(syscall(SYS_pidfd_getfd, script_.fd(), STDERR_FILENO, 0)));
  if (!script_stderr && !name.empty()) script_stderr = Fd(open(path.c_str(), flags));
  pollfd reader[] = {{script_stderr.get(), POLLOUT, 0}};
  const bool is_its = !script_.ended();
  const std::string told = text + (signalled_ ? "" : stop_script(escaped(name)));
  const std::string line = "dlock: " + told + "\n";
  // A reader that is slow, or has gone, misses it.
  const bool is_told = is_its && poll_until(reader, {}) > 0;
  if (is_told) (void)!write(script_stderr.get(), line.data(), line.size());
  write_system_log(told);
}

std::string AttachDaemonProcess::stop_script(const std::string& name) {
  const milliseconds ttl = held_.front().claim.ttl;
  signalled_ = true;
  descendants_.clear();
  find_descendants();
  const bool sent = signal_script(loss_signal_);
  auto grace = usual_grace(ttl);
  if (holds_) grace = std::min(grace, left_until(holds_->safe_until()) - kill_cost(ttl));
  kill_at_ = later(BootClock::now(), grace);
  return std::string(sent ? "; sent" : "; could not send") + " signal " +
         signal_name(loss_signal_) + " to process " + std::to_string(script_.pid()) + " (" + name +
         ")" + (descendants_.empty() ? "" : " and its descendants") + "; SIGKILL follows in " +
         human_duration(std::max(grace, milliseconds(0)));
}

/// The processes below the script and below those that were signalled with it, parents first.
void AttachDaemonProcess::find_descendants() {
  const auto known = descendants_.size();
  find_below(script_);
  for (std::size_t i = 0; i < known; ++i) find_below(descendants_[i]);
}

void AttachDaemonProcess::find_below(const WatchedProcess& root) {
  descendants_of(root.pid(), {}, [&](const Descendant& found) {
    const bool known = std::any_of(
        descendants_.begin(), descendants_.end(),
        [&](const WatchedProcess& each) { return each.pid() == found.pid && !each.ended(); });
    if (known) return;
    try {
      WatchedProcess process(found.pid);
      const auto now = stat_of(found.pid);
      const bool is_the_found = now && now->parent == found.parent && root.send(0);
      if (is_the_found) descendants_.push_back(std::move(process));
    } catch (const Error&) {
      // It has ended, or is another user's.
    }
  });
}

/// Parents first, as in ProcessTree::signal().
bool AttachDaemonProcess::signal_script(int signal) const {
  const bool sent = script_.send(signal);
  for (const WatchedProcess& each : descendants_) each.send(signal);
  return sent;
}

void AttachDaemonProcess::kill_script() {
  kill_at_ = never;
  find_descendants();
  signal_script(SIGKILL);
  await_script(later(BootClock::now(), time_to_give_back));
}

void AttachDaemonProcess::await_script(Deadline until) const {
  const auto await = [until](const WatchedProcess& process) {
    pollfd end[] = {{process.fd(), POLLIN, 0}};
    poll_until(end, until);
  };
  await(script_);
  std::for_each(descendants_.begin(), descendants_.end(), await);
}

/// Once it was signalled: nothing of it works on beside the next holder.
void AttachDaemonProcess::see_script_end() {
  if (kill_at_ == never) return;
  await_script(kill_at_);
  kill_script();
}

}  // namespace

void run_attach_daemon(StorePtr store, const std::vector<Held>& held, const WatchedProcess& script,
                       int loss_signal, Fd channel) {
  try {
    AttachDaemonProcess(std::move(store), held, script, loss_signal, std::move(channel)).live();
  } catch (...) {
    // Nobody is there to be told.
  }
  _exit(0);
}

namespace {

/// The next message; empty if there is none and never will be.
std::string receive(int fd) {
  char text[longest_daemon_message];
  auto got = recv(fd, text, sizeof text, 0);
  // An end that did not read all of ours is told once, before what it said last.
  if (got < 0 && errno == ECONNRESET) got = recv(fd, text, sizeof text, 0);
  return {text, got > 0 ? static_cast<std::size_t>(got) : 0};
}

}  // namespace

AttachDaemon::AttachDaemon(StorePtr& store, std::function<StorePtr()> open_store,
                           const std::vector<Held>& held, const WatchedProcess& script,
                           int loss_signal)
    : store_(store), open_store_(std::move(open_store)), held_(held) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) throw_errno("socketpair");
  channel_.reset(ends[0]);
  Fd other(ends[1]);
  store_->suspend(Suspension::fork);
  const pid_t pid = fork();
  if (pid < 0) throw_errno("cannot start a process to keep the lock: fork");
  if (pid == 0) {
    channel_.reset();
    run_attach_daemon(std::move(store), held, script, loss_signal, std::move(other));
  }
  if (auto* here = store_->host_view()) here->leave_to(pid);
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

/// It was killed: what it had done of its work is undone here. Its last request may not have been
/// answered to the end, so no connection of its is used again.
bool AttachDaemon::give_back_in_its_place() {
  StorePtr anew = open_store_();
  if (auto* here = store_->host_view()) here->leave_to(getpid());
  store_ = std::move(anew);
  return release_all(*store_, held_, time_to_give_back);
}

void AttachDaemon::ended_too_soon() {
  const std::string what = "the attach daemon ended too soon";
  throw Error(ErrorKind::host_refused,
              what + (give_back_in_its_place() ? ", so the lock was released"
                                               : ", and the lock could not be released"));
}

bool AttachDaemon::commit() {
  constexpr milliseconds time_to_answer{2000};
  const std::string word = daemon_commit;
  send(channel_.get(), word.data(), word.size(), MSG_NOSIGNAL);
  pollfd answer[] = {{channel_.get(), POLLIN, 0}};
  // A daemon that is stopped finds the word when it goes on.
  if (poll_until(answer, later(BootClock::now(), time_to_answer)) == 0) return true;
  const std::string message = receive(channel_.get());
  if (message.empty()) ended_too_soon();
  return message == daemon_keeps;
}

void AttachDaemon::dismiss() {
  constexpr milliseconds time_to_end{1000};
  shutdown(channel_.get(), SHUT_WR);
  // As release_all() may take, but that it hardly ever does.
  const auto for_all = time_to_give_back * static_cast<int>(held_.size() + 1);
  const Deadline until = later(BootClock::now(), for_all + time_to_end);
  pollfd fds[] = {{channel_.get(), POLLIN, 0}};
  std::string last;
  while (poll_until(fds, until) > 0) {
    const std::string message = receive(channel_.get());
    const bool killed = message.empty() && (last.empty() || last == daemon_keeps);
    if (killed) give_back_in_its_place();
    if (message.empty()) return;
    last = message;
  }
}

}  // namespace dlock
