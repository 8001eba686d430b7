#include "attach/attach_daemon_process.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <optional>

#include "attach/attached_holds.hpp"
#include "attach/release_socket.hpp"
#include "attach/system_log.hpp"
#include "base/error.hpp"
#include "base/escape.hpp"
#include "base/process.hpp"
#include "base/wait.hpp"
#include "lock/release.hpp"
#include "supervise/background.hpp"
#include "supervise/signals.hpp"

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
    poll_until(fds, std::min(holds_->look_by(), door_->open_by()));
    if (script_.ended()) return end(time_to_release);
    if (on_trial() && readable(channel_.get()) && !hear_parent()) {
      return holds_->give_back(time_to_give_back);
    }
    // Before the look: what a visitor is about to release is no loss.
    door_->serve(*holds_);
    while (const auto loss = holds_->look()) {
      if (on_trial()) return end(time_to_give_back);
      tell_loss(*loss);
    }
    if (!holds_->in_trouble()) signalled_ = false;
  }
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
  std::string told;
  if (!signalled_) {
    signalled_ = true;
    // The signal may end it before anybody could ask for its name.
    const std::string name = escaped(command_name(script_.pid()));
    const bool sent = script_.send(loss_signal_);
    told = std::string(sent ? "; sent" : "; could not send") + " signal " +
           signal_name(loss_signal_) + " to process " + std::to_string(script_.pid()) + " (" +
           name + ")";
  }
  write_system_log(text + told);
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
