#include "attach/attach_daemon.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "attach/attach_daemon_process.hpp"
#include "base/error.hpp"
#include "base/wait.hpp"
#include "lock/release.hpp"

namespace dlock {
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
