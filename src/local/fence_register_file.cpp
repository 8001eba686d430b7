#include "local/fence_register_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <system_error>
#include <thread>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"
#include "local/file_lock.hpp"
#include "local/key_file.hpp"

namespace dlock {
namespace {

/// Sixteen digits and the newline.
constexpr std::size_t longest_record = 17;

/// While it exists somebody waits for a lock that flock(2) gives without telling how long it takes.
class LongWait {
 public:
  explicit LongWait(const std::function<void()>& told) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);  // they are for the thread that waits
    try {
      thread_ = std::thread([this, told] {
        pollfd over[] = {{over_.fd(), POLLIN, 0}};
        if (poll_until(over, later(BootClock::now(), longest_silence)) == 0) told();
      });
    } catch (const std::system_error&) {
      // Where there can be no thread it waits without a word.
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  LongWait(const LongWait&) = delete;
  LongWait& operator=(const LongWait&) = delete;
  ~LongWait() {
    over_.raise();
    if (thread_.joinable()) thread_.join();
  }

 private:
  static constexpr milliseconds longest_silence{1000};
  Event over_;
  std::thread thread_;
};

}  // namespace

FenceFile FenceFile::open(const std::string& path, const std::function<void()>& waiting) {
  const auto name_at = path.rfind('/') + 1;  // npos + 1 is 0
  const std::string parent = name_at == 0 ? "." : path.substr(0, name_at);
  // Behind a slash at the end there is a directory, which is refused as one.
  const std::string name = name_at == path.size() ? "." : path.substr(name_at);
  if (access(parent.c_str(), F_OK) != 0) throw_errno("cannot open " + escaped(path));
  return open_at({Directory({parent, false}), name, escaped(path)}, waiting);
}

FenceFile FenceFile::open(const DirectorySettings& locks, const LockKey& resource,
                          const std::function<void()>& waiting) {
  Directory directory(locks);
  const std::string name = fence_file_name(resource);
  const std::string shown = directory.shown(name);
  return open_at({std::move(directory), name, shown}, waiting);
}

FenceFile FenceFile::open_at(Place place, const std::function<void()>& waiting) {
  Fd fd = open_or_create(place);
  FenceFile file(std::move(place), std::move(fd));
  while (true) {
    struct stat info {};
    if (fstat(file.fd_.get(), &info) != 0) throw_errno("cannot look at " + file.shown());
    if (!S_ISREG(info.st_mode)) {
      throw Error(ErrorKind::host_refused, file.shown() + " is not a plain file: refused");
    }
    file.lock(waiting);
    if (file.is_still_there()) return file;
    file.fd_ = open_or_create(file.place_);
  }
}

Fd FenceFile::open_or_create(const Place& place) {
  OpenedFile file = open_file(place.directory.fd(), place.name, O_RDWR, 0600);
  if (file.fd && file.created) place.directory.share(file.fd.get());
  if (file.fd) return std::move(file.fd);
  if (file.created) throw_errno("cannot make " + place.shown);
  if (errno != ELOOP) throw_errno("cannot open " + place.shown);
  throw Error(ErrorKind::host_refused, place.shown + " is a symbolic link: refused");
}

FenceFile::~FenceFile() {
  // Not left to close(): a child forked just now has a copy until it execs.
  if (fd_) flock(fd_.get(), LOCK_UN);
}

void FenceFile::lock(const std::function<void()>& waiting) {
  if (flock(fd_.get(), LOCK_EX | LOCK_NB) == 0) return;
  if (errno != EWOULDBLOCK) throw_errno("cannot lock " + shown());
  const LongWait teller(waiting);
  while (flock(fd_.get(), LOCK_EX) != 0) {
    if (errno != EINTR) throw_errno("cannot lock " + shown());
  }
}

/// False if another file stands there by now, or none.
bool FenceFile::is_still_there() const {
  struct stat locked {};
  struct stat there {};
  if (fstat(fd_.get(), &locked) != 0) throw_errno("cannot look at " + shown());
  const int found =
      fstatat(place_.directory.fd(), place_.name.c_str(), &there, AT_SYMLINK_NOFOLLOW);
  return found == 0 && there.st_dev == locked.st_dev && there.st_ino == locked.st_ino;
}

/// Written in place: the file stays the same for those who wait for its lock, and keeps its owner
/// and mode, and its directory need not be writable. What makes that atomic: a record is so short
/// that it lies in one sector, and fences grow, so that none is shorter than the one before. Only
/// where it is longer the size changes as well, which a power cut may separate from the text; so
/// that comes first, and alone: NULs behind the newline are room for the next record.
Fence FenceFile::record_max(Fence fence) {
  const std::string content = read();
  const auto before = recorded(content);
  if (before && *before > fence) return *before;
  const std::string text = std::to_string(fence.value) + "\n";
  if (content.empty()) sync_directory();
  if (!content.empty() && content.size() < text.size()) {
    if (ftruncate(fd_.get(), static_cast<off_t>(text.size())) != 0) {
      throw_errno("cannot write " + shown());
    }
    sync();
  }
  write(text);
  sync();
  return fence;
}

std::string FenceFile::read() const {
  char bytes[longest_record + 1];
  const ssize_t got = pread(fd_.get(), bytes, sizeof bytes, 0);
  if (got < 0) throw_errno("cannot read " + shown());
  return {bytes, static_cast<std::size_t>(got)};
}

std::optional<Fence> FenceFile::recorded(const std::string& content) const {
  if (content.empty()) return std::nullopt;
  const auto end = content.find('\n');
  const auto number = parse_number(content.substr(0, end), 0, largest_fence);
  // Without zeros in front, or the next record might be shorter.
  const bool whole = number && content.size() <= longest_record &&
                     content.starts_with(std::to_string(*number) + "\n") &&
                     content.find_first_not_of('\0', end + 1) == std::string::npos;
  if (whole) return Fence{*number};
  throw Error(ErrorKind::wrong_data,
              shown() + " holds something other than one number, the largest fence: it " +
                  "is left as it is");
}

void FenceFile::write(const std::string& text) const {
  const ssize_t wrote = pwrite(fd_.get(), text.data(), text.size(), 0);
  if (wrote < 0) throw_errno("cannot write " + shown());
  if (wrote == static_cast<ssize_t>(text.size())) return;
  throw Error(ErrorKind::host_refused, "cannot write " + shown() + " as a whole");
}

void FenceFile::sync() const {
  if (fdatasync(fd_.get()) != 0) throw_errno("cannot write " + shown());
}

/// Before the first record, not right after the file was made: who made it may have been killed.
void FenceFile::sync_directory() const {
  const Fd readable(openat(place_.directory.fd(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!readable || fsync(readable.get()) != 0) {
    throw_errno("cannot keep " + shown() + " in its directory");
  }
}

}  // namespace dlock
