#include "local/fence_register_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"
#include "local/file_lock.hpp"
#include "local/key_file.hpp"

namespace dlock {
namespace {

/// A record has at most sixteen digits and a newline.
constexpr std::size_t longest_record = 17;

}  // namespace

FenceFile FenceFile::open(const std::string& path, const std::function<void()>& waiting) {
  const auto name_at = path.rfind('/') + 1;  // npos + 1 is 0
  const std::string parent = name_at == 0 ? "." : path.substr(0, name_at);
  // A name that ends in a slash is a directory, which is refused as such.
  const std::string name = name_at == path.size() ? "." : path.substr(name_at);
  if (access(parent.c_str(), F_OK) != 0) throw_errno("cannot open " + escaped(path));
  FenceFile file(Directory({parent, false}), name, escaped(path));
  file.open_and_lock(waiting);
  return file;
}

FenceFile FenceFile::open(const DirectorySettings& locks, const LockKey& resource,
                          const std::function<void()>& waiting) {
  Directory directory(locks);
  const std::string name = fence_file_name(resource);
  const std::string shown = directory.shown(name);
  FenceFile file(std::move(directory), name, shown);
  file.open_and_lock(waiting);
  return file;
}

FenceFile::~FenceFile() {
  // Unlock explicitly: a child that was just forked has a copy of the descriptor until it execs.
  if (fd_) flock(fd_.get(), LOCK_UN);
}

void FenceFile::open_and_lock(const std::function<void()>& waiting) {
  do {
    open_or_create();
    struct stat info {};
    if (fstat(fd_.get(), &info) != 0) throw_errno("cannot look at " + shown_);
    if (!S_ISREG(info.st_mode)) {
      throw Error(ErrorKind::host_refused, shown_ + " is not a plain file: refused");
    }
    constexpr milliseconds longest_silence{1000};
    if (!lock_file(fd_.get(), at_most(longest_silence, {}), shown_)) {
      waiting();
      lock_file(fd_.get(), {}, shown_);
    }
  } while (!is_still_there());
}

void FenceFile::open_or_create() {
  OpenedFile file = open_file(directory_.fd(), name_, O_RDWR, 0600);
  if (!file.fd && file.created) throw_errno("cannot make " + shown_);
  if (!file.fd && errno == ELOOP) {
    throw Error(ErrorKind::host_refused, shown_ + " is a symbolic link: refused");
  }
  if (!file.fd) throw_errno("cannot open " + shown_);
  if (file.created) directory_.share(file.fd.get());
  fd_ = std::move(file.fd);
}

/// False if the file was replaced or removed meanwhile.
bool FenceFile::is_still_there() const {
  struct stat locked {};
  struct stat there {};
  if (fstat(fd_.get(), &locked) != 0) throw_errno("cannot look at " + shown_);
  const int found = fstatat(directory_.fd(), name_.c_str(), &there, AT_SYMLINK_NOFOLLOW);
  return found == 0 && there.st_dev == locked.st_dev && there.st_ino == locked.st_ino;
}

/// Writes in place, so that the file stays the same for processes that wait for its lock and keeps
/// its owner and mode, and the directory need not be writable. The write is atomic because a record
/// fits into one sector, and no record is shorter than the one before, as fences grow. Only a
/// longer record changes the file's size, which a power cut may separate from the text. The size
/// therefore changes first, in a separate step: NULs after the newline are room for the next
/// record.
Fence FenceFile::record_max(Fence fence) {
  const std::string content = read();
  const auto before = recorded(content);
  if (before && *before > fence) return *before;
  const std::string text = std::to_string(fence.value) + "\n";
  if (content.empty()) sync_directory();
  if (!content.empty() && content.size() < text.size()) {
    if (ftruncate(fd_.get(), static_cast<off_t>(text.size())) != 0) {
      throw_errno("cannot write " + shown_);
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
  if (got < 0) throw_errno("cannot read " + shown_);
  return {bytes, static_cast<std::size_t>(got)};
}

std::optional<Fence> FenceFile::recorded(const std::string& content) const {
  if (content.empty()) return std::nullopt;
  const auto end = content.find('\n');
  const auto number = parse_number(content.substr(0, end), 0, largest_fence);
  // Leading zeros are refused, because the next record might then be shorter.
  const bool whole = number && content.size() <= longest_record &&
                     content.starts_with(std::to_string(*number) + "\n") &&
                     content.find_first_not_of('\0', end + 1) == std::string::npos;
  if (whole) return Fence{*number};
  throw Error(ErrorKind::wrong_data,
              shown_ + " holds something other than one number, the largest fence: it " +
                  "is left as it is");
}

void FenceFile::write(const std::string& text) const {
  const ssize_t wrote = pwrite(fd_.get(), text.data(), text.size(), 0);
  if (wrote < 0) throw_errno("cannot write " + shown_);
  if (wrote == static_cast<ssize_t>(text.size())) return;
  throw Error(ErrorKind::host_refused, "cannot write " + shown_ + " as a whole");
}

void FenceFile::sync() const {
  if (fdatasync(fd_.get()) != 0) throw_errno("cannot write " + shown_);
}

/// Called before the first record, not when the file is created: its creator may have been killed.
void FenceFile::sync_directory() const {
  const Fd readable(openat(directory_.fd(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!readable || fsync(readable.get()) != 0) {
    throw_errno("cannot keep " + shown_ + " in its directory");
  }
}

}  // namespace dlock
