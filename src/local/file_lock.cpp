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
    // O_CREAT comes only now: fs.protected_regular refuses it for others' files in sticky
    // directories.
    fd.reset(openat(directory, name.c_str(), O_RDWR | O_CREAT | O_EXCL | flags, *create));
    if (fd || errno != EEXIST) return {std::move(fd), true};
  }
}

namespace {

[[noreturn]] void refuse(const std::string& where) { throw_errno("cannot lock " + where); }

/// Waits in the kernel's queue for a file lock; false at the deadline or when cancelled. flock(2)
/// has neither a deadline nor an interruption, so a thread waits, and its call is ended by a signal
/// that processes ignore by default (signal(7)).
bool lock_queued(int fd, const CallOptions& call_options, const std::string& where) {
  constexpr int nudge = SIGURG;
  struct sigaction no_restart {};
  no_restart.sa_handler = [](int) {};
  if (sigaction(nudge, &no_restart, nullptr) != 0) throw_errno("cannot handle SIGURG");
  std::atomic<bool> given_up = false;
  int error = 0;
  const Event ended;
  std::thread waiting = start_thread([&] {
    sigset_t nudges;
    sigemptyset(&nudges);
    sigaddset(&nudges, nudge);
    pthread_sigmask(SIG_UNBLOCK, &nudges, nullptr);
    do {
      error = flock(fd, LOCK_EX) == 0 ? 0 : errno;
    } while (error == EINTR && !given_up);
    ended.raise();
  });
  pollfd fds[] = {{ended.fd(), POLLIN, 0}, {call_options.cancel_fd, POLLIN, 0}};
  poll_until(fds, call_options.deadline);
  given_up = true;
  // The first signal may come just before the call.
  constexpr auto between_nudges = milliseconds(1);
  while (!sleep_until(later(BootClock::now(), between_nudges), ended.fd())) {
    pthread_kill(waiting.native_handle(), nudge);
  }
  waiting.join();
  if (error == 0 || error == EINTR) return error == 0;
  errno = error;
  refuse(where);
}

}  // namespace

bool lock_file(int fd, const CallOptions& call_options, const std::string& where) {
  // Other processes hold the lock for microseconds, so these tries usually cost less than a thread.
  constexpr int tries = 8;
  for (int i = 0; i < tries; ++i) {
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) return true;
    if (errno != EWOULDBLOCK && errno != EINTR) refuse(where);
    std::this_thread::yield();
  }
  return lock_queued(fd, call_options, where);
}

}  // namespace dlock
