#include "local/file_lock.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <thread>

#include "base/error.hpp"
#include "base/thread.hpp"
#include "base/wait.hpp"

namespace dlock {

OpenedFile open_file(int directory, const std::string& name, int access,
                     std::optional<mode_t> create) {
  constexpr int flags = O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  while (true) {
    Fd fd(openat(directory, name.c_str(), access | flags));
    if (fd || errno != ENOENT || !create) return {std::move(fd), false};
    // Only now O_CREAT: fs.protected_regular refuses it for others' files in sticky directories.
    fd.reset(openat(directory, name.c_str(), O_RDWR | O_CREAT | O_EXCL | flags, *create));
    if (fd || errno != EEXIST) return {std::move(fd), true};
  }
}

namespace {

[[noreturn]] void refuse(const std::string& where) { throw_errno("cannot lock " + where); }

/// A wait for a file in the kernel's queue. flock(2) knows neither deadline nor interruption, so a
/// thread waits, and a signal of which no process takes notice (signal(7)) ends its call.
class QueuedLock {
 public:
  QueuedLock(int fd, const std::string& where) : fd_(fd), where_(where) {
    struct sigaction no_restart {};
    no_restart.sa_handler = [](int) {};
    if (sigaction(nudge, &no_restart, nullptr) != 0) throw_errno("cannot handle SIGURG");
    thread_ = start_thread([this] { wait(); });
  }
  ~QueuedLock() {
    given_up_ = true;
    constexpr auto between_nudges = milliseconds(1);
    // The first one may come just before the call.
    while (!ended_within(between_nudges)) pthread_kill(thread_.native_handle(), nudge);
    thread_.join();
    if (locked_ && !taken_) flock(fd_, LOCK_UN);
  }
  QueuedLock(const QueuedLock&) = delete;
  QueuedLock& operator=(const QueuedLock&) = delete;

  /// True if the lock is held, from now on by the caller.
  bool wait_until(Deadline deadline, int cancel_fd) {
    pollfd fds[] = {{ended_.fd(), POLLIN, 0}, {cancel_fd, POLLIN, 0}};
    poll_until(fds, deadline);
    if (!ended_.raised()) return false;
    if (error_ != 0) {
      errno = error_;
      refuse(where_);
    }
    taken_ = locked_;
    return taken_;
  }

 private:
  static constexpr int nudge = SIGURG;

  bool ended_within(milliseconds span) const {
    pollfd fds[] = {{ended_.fd(), POLLIN, 0}};
    return poll_until(fds, later(BootClock::now(), span)) > 0;
  }

  void wait() {
    sigset_t nudges;
    sigemptyset(&nudges);
    sigaddset(&nudges, nudge);
    pthread_sigmask(SIG_UNBLOCK, &nudges, nullptr);
    while (!given_up_ && !locked_ && error_ == 0) {
      locked_ = flock(fd_, LOCK_EX) == 0;
      if (!locked_ && errno != EINTR) error_ = errno;
    }
    ended_.raise();
  }

  int fd_;
  const std::string& where_;
  std::atomic<bool> given_up_ = false;
  std::atomic<bool> locked_ = false;
  bool taken_ = false;
  std::atomic<int> error_ = 0;
  Event ended_;
  std::thread thread_;
};

}  // namespace

void lock_file(int fd, const CallOptions& call_options, const std::string& where) {
  // The processes inside stay for microseconds: as a rule this is less than a thread costs.
  constexpr int tries = 8;
  for (int i = 0; i < tries; ++i) {
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) return;
    if (errno != EWOULDBLOCK && errno != EINTR) refuse(where);
    std::this_thread::yield();
  }
  if (QueuedLock(fd, where).wait_until(call_options.deadline, call_options.cancel_fd)) return;
  if (readable(call_options.cancel_fd)) throw_interrupted();
  throw Error(ErrorKind::unavailable,
              where + " is in use by another process for too long: is a dlock stopped?");
}

}  // namespace dlock
