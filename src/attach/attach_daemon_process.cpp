#include "attach/attach_daemon_process.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <deque>
#include <optional>

#include "attach/attached_holds.hpp"
#include "attach/release_socket.hpp"
#include "attach/system_log.hpp"
#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/escape.hpp"
#include "base/process.hpp"
#include "base/wait.hpp"
#include "lock/release.hpp"
#include "supervise/background.hpp"
#include "supervise/process_tree.hpp"
#include "supervise/signals.hpp"
#include "supervise/supervise.hpp"

namespace dlock {
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

}  // namespace dlock
