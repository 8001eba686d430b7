#include "local/locked_file.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <ctime>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "base/thread.hpp"

namespace dlock {
namespace {

/// Waits in the kernel's queue for a file lock; false at the deadline or when cancelled. flock(2)
/// has neither a deadline nor an interruption, so a thread waits in it, and SIGURG, which processes
/// ignore by default (signal(7)), ends the thread's call.
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
  // Repeat the signal, because the first one may come just before the call.
  constexpr auto between_nudges = milliseconds(1);
  while (!sleep_until(later(BootClock::now(), between_nudges), ended.fd())) {
    pthread_kill(waiting.native_handle(), nudge);
  }
  waiting.join();
  if (error == 0 || error == EINTR) return error == 0;
  errno = error;
  throw_errno("cannot lock " + where);
}

/// Pauses for a millisecond: another process needs only microseconds.
void wait_a_little(const CallOptions& call_options, const std::string& where) {
  if (BootClock::now() >= call_options.deadline) {
    throw Error(ErrorKind::unavailable,
                where + " is being made or removed by other processes all the time");
  }
  if (sleep_until(later(BootClock::now(), milliseconds(1)), call_options.cancel_fd)) {
    throw_interrupted();
  }
}

/// Whether the file is empty and young: another user's new file is closed to us until its creator
/// has set the mode.
bool is_being_made(const Directory& directory, const std::string& name) {
  constexpr std::time_t young_seconds = 2;
  struct stat info {};
  if (fstatat(directory.fd(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return false;
  return S_ISREG(info.st_mode) && info.st_size == 0 &&
         std::time(nullptr) - info.st_ctime < young_seconds;
}

struct OpenedFile {
  Fd fd;                 ///< empty: errno says why
  bool created = false;  ///< open_for() has created the file, or failed to create it
};

/// Opens the file, never through a symbolic link, and without blocking at a FIFO.
OpenedFile open_for(LockedFile::Use use, const Directory& directory, const std::string& name) {
  constexpr int flags = O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  while (true) {
    // Open for writing, if permitted, even for `read`: NFS grants an exclusive lock only on a
    // descriptor that is open for writing (flock(2)).
    Fd fd(openat(directory.fd(), name.c_str(), O_RDWR | flags));
    const bool may_be_read = errno == EACCES || errno == EPERM || errno == EROFS || errno == EISDIR;
    if (!fd && use == LockedFile::Use::read && may_be_read) {
      fd.reset(openat(directory.fd(), name.c_str(), O_RDONLY | flags));
    }
    if (fd || errno != ENOENT || use != LockedFile::Use::create) return {std::move(fd), false};
    // O_CREAT comes only now: fs.protected_regular refuses it for others' files in sticky
    // directories.
    fd.reset(openat(directory.fd(), name.c_str(), O_RDWR | O_CREAT | O_EXCL | flags, 0600));
    if (fd || errno != EEXIST) return {std::move(fd), true};
  }
}

}  // namespace

bool lock_file(int fd, const CallOptions& call_options, const std::string& where) {
  // Other processes hold the lock for microseconds, so these tries usually cost less than a thread.
  constexpr int tries = 8;
  for (int i = 0; i < tries; ++i) {
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) return true;
    if (errno != EWOULDBLOCK && errno != EINTR) throw_errno("cannot lock " + where);
    std::this_thread::yield();
  }
  return lock_queued(fd, call_options, where);
}

std::optional<LockedFile> LockedFile::open(const Directory& directory, const std::string& name,
                                           std::string where, Use use,
                                           const CallOptions& call_options) {
  while (true) {
    auto [fd, created] = open_for(use, directory, name);
    if (fd) {
      if (created) directory.share(fd.get());
      LockedFile file(std::move(fd), created, where);
      if (file.lock(directory, name, call_options)) return file;
    } else {
      if (created) throw_errno("cannot make " + where);
      if (errno == ENOENT) return std::nullopt;
      if (errno == ELOOP) {
        throw Error(ErrorKind::host_refused, where + " is a symbolic link: refused");
      }
      if (errno != EACCES || !is_being_made(directory, name)) throw_errno("cannot open " + where);
    }
    wait_a_little(call_options, where);
  }
}

LockedFile::~LockedFile() {
  // Unlock explicitly: a child that another thread just forked has a copy until it execs.
  if (fd_) flock(fd_.get(), LOCK_UN);
}

/// Locks the file; returns false if its name was removed or got another file before that.
bool LockedFile::lock(const Directory& directory, const std::string& name,
                      const CallOptions& call_options) {
  if (fstat(fd_.get(), &info_) != 0) throw_errno("cannot look at " + where_);
  if (!S_ISREG(info_.st_mode)) {
    throw Error(ErrorKind::host_refused, where_ + " is not a plain file: refused");
  }
  // Readers also take an exclusive lock: overlapping shared locks would starve a writer.
  if (!lock_file(fd_.get(), call_options, where_)) {
    if (readable(call_options.cancel_fd)) throw_interrupted();
    throw Error(ErrorKind::unavailable,
                where_ + " is in use by another process for too long: is a dlock stopped?");
  }
  struct stat there {};
  const int found = fstatat(directory.fd(), name.c_str(), &there, AT_SYMLINK_NOFOLLOW);
  const bool same = found == 0 && there.st_dev == info_.st_dev && there.st_ino == info_.st_ino;
  info_ = there;
  return same;
}

void LockedFile::read(std::size_t offset, std::size_t length, std::string& content) const {
  content.resize(length);
  std::size_t filled = 0;
  while (filled < length) {
    const ssize_t got = pread(fd_.get(), content.data() + filled, length - filled,
                              static_cast<off_t>(offset + filled));
    if (got < 0) throw_errno("cannot read " + where_);
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
  }
  content.resize(filled);
}

void LockedFile::write(std::string_view bytes, std::size_t offset) const {
  while (!bytes.empty()) {
    const ssize_t wrote = pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) throw_errno("cannot write " + where_);
    bytes.remove_prefix(static_cast<std::size_t>(wrote));
    offset += static_cast<std::size_t>(wrote);
  }
}

}  // namespace dlock
