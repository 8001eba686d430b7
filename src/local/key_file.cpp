#include "local/key_file.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>

#include "base/error.hpp"
#include "base/text.hpp"
#include "local/directory.hpp"
#include "local/file_lock.hpp"

namespace dlock {
namespace {

constexpr std::size_t longest_plain_name = 200;
constexpr std::size_t length_of_cut = 150;
/// Stands before the hash of a cut name, and is encoded wherever else it comes.
constexpr char cut_mark = '~';
constexpr std::uint64_t second_basis = 0x9ae16a3b2f90404fu;

std::string file_name(const LockKey& key, std::string_view suffix) {
  std::string name = percent_encoded(key.text, "/~");
  if (name.front() == '.') name.replace(0, 1, "%2E");
  if (name.size() > longest_plain_name) {
    char hash[40];
    std::snprintf(hash, sizeof hash, "%c%016llx%016llx", cut_mark,
                  static_cast<unsigned long long>(fnv1a(key.text)),
                  static_cast<unsigned long long>(fnv1a(key.text, second_basis)));
    name.resize(length_of_cut);
    name += hash;
  }
  return name + std::string(suffix);
}

bool ends_in(std::string_view name, std::string_view suffix) {
  return name.size() > suffix.size() && name.front() != '.' && name.ends_with(suffix);
}

}  // namespace

std::string key_file_name(const LockKey& key) { return file_name(key, key_suffix); }

std::string fence_file_name(const LockKey& resource) { return file_name(resource, ".seal"); }
std::string latch_file_name(const LockKey& key) { return file_name(key, latch_suffix); }

std::optional<LockKey> key_of_file_name(std::string_view name) {
  if (!is_key_file_name(name) && !is_latch_file_name(name)) return std::nullopt;
  name.remove_suffix(name.size() - name.rfind('.'));
  if (name.find(cut_mark) != std::string_view::npos) return std::nullopt;
  LockKey key{percent_decoded(name)};
  if (key_fault(key.text)) return std::nullopt;
  return key;
}

bool is_key_file_name(std::string_view name) { return ends_in(name, key_suffix); }

bool is_latch_file_name(std::string_view name) { return ends_in(name, latch_suffix); }

namespace {

/// From here on a file that has become mostly empty is cut.
constexpr std::size_t worth_cutting = 65536;
/// A region apart starts here if there is room: states, which are small, change places before it,
/// and it can grow at its end. Of the gap between them nothing is stored.
constexpr std::uint64_t apart_from = 131072;
/// More than a hundred thousand waiters take.
constexpr std::size_t largest = 64 * 1024 * 1024;

/// Waits a little for the `tries`-th time, for what another process does in microseconds.
void wait_a_little(int tries, const CallOptions& call_options, const std::string& where) {
  constexpr int yields = 4;
  constexpr std::chrono::nanoseconds first_sleep = microseconds(20);
  constexpr std::chrono::nanoseconds longest_sleep = milliseconds(5);
  const auto left = call_options.deadline - BootClock::now();
  if (left <= std::chrono::nanoseconds(0)) {
    throw Error(ErrorKind::unavailable,
                where + " is being made or removed by other processes all the time");
  }
  if (tries < yields) {
    sched_yield();
    return;
  }
  const auto span = std::min({first_sleep * (1 << std::min(tries - yields, 8)), longest_sleep,
                              std::chrono::nanoseconds(left)});
  const timespec timeout{0, static_cast<long>(span.count())};
  pollfd interrupt{call_options.cancel_fd, POLLIN, 0};
  if (ppoll(&interrupt, 1, &timeout, nullptr) > 0) throw_interrupted();
}

[[noreturn]] void refuse(const std::string& where, const char* what) {
  throw Error(ErrorKind::host_refused, where + " " + what);
}

/// Another user's new file is closed to us until its maker has set the mode: empty, and young.
bool is_being_made(const Directory& directory, const std::string& name) {
  constexpr std::time_t young_seconds = 2;
  struct stat info {};
  if (fstatat(directory.fd(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return false;
  return S_ISREG(info.st_mode) && info.st_size == 0 &&
         std::time(nullptr) - info.st_ctime < young_seconds;
}

/// Whether a process of this user was killed before it could let others at the file.
bool is_half_made(const Fd& file) {
  struct stat info {};
  return fstat(file.get(), &info) == 0 && S_ISREG(info.st_mode) && info.st_nlink == 1 &&
         info.st_uid == geteuid() && info.st_size == 0 && (info.st_mode & 0777) == 0600;
}

/// A file that dlock only reads is open for writing, too, where dlock may write to it: NFS gives an
/// exclusive lock on no other descriptor (flock(2)).
OpenedFile open_for(KeyFile::Use use, const Directory& directory, const std::string& name) {
  const auto create = use == KeyFile::Use::create ? std::optional<mode_t>(0600) : std::nullopt;
  OpenedFile file = open_file(directory.fd(), name, O_RDWR, create);
  if (file.fd || use != KeyFile::Use::read) return file;
  const bool may_be_read = errno == EACCES || errno == EPERM || errno == EROFS || errno == EISDIR;
  if (!may_be_read) return file;
  return open_file(directory.fd(), name, O_RDONLY, std::nullopt);
}

/// The open file, whether it was made just now; an empty Fd if there is none.
std::pair<Fd, bool> open_or_create(const Directory& directory, const std::string& name,
                                   KeyFile::Use use, const CallOptions& call_options) {
  for (int tries = 0;; ++tries) {
    OpenedFile file = open_for(use, directory, name);
    if (file.fd && (file.created || is_half_made(file.fd))) directory.share(file.fd.get());
    if (file.fd) return {std::move(file.fd), file.created};
    if (file.created) throw_errno("cannot make " + directory.shown(name));
    if (errno == ENOENT) return {};
    if (errno == ELOOP) refuse(directory.shown(name), "is a symbolic link: refused");
    if (errno != EACCES || !is_being_made(directory, name)) {
      throw_errno("cannot open " + directory.shown(name));
    }
    wait_a_little(tries, call_options, directory.shown(name));
  }
}

}  // namespace

std::optional<KeyFile> KeyFile::open(const Directory& directory, const std::string& name, Use use,
                                     const CallOptions& call_options) {
  for (int tries = 0;; ++tries) {
    auto [fd, created] = open_or_create(directory, name, use, call_options);
    if (!fd) return std::nullopt;
    KeyFile file(directory, name, std::move(fd), created);
    if (file.lock_and_check(call_options)) return file;
    wait_a_little(tries, call_options, directory.shown(name));
  }
}

KeyFile::~KeyFile() {
  // Not left to close(): a child forked by another thread just now has a copy until it execs.
  if (fd_) flock(fd_.get(), LOCK_UN);
}

/// False if the file was removed before the lock was had.
bool KeyFile::lock_and_check(const CallOptions& call_options) {
  const std::string where = directory_->shown(name_);
  // Readers too lock it for themselves alone: shared locks that overlap would starve a writer.
  lock_file(fd_.get(), call_options, where);
  struct stat info {};
  if (fstat(fd_.get(), &info) != 0) throw_errno("cannot look at " + where);
  if (!S_ISREG(info.st_mode)) refuse(where, "is not a plain file: refused");
  if (info.st_nlink == 0) return false;
  if (info.st_nlink > 1) refuse(where, "has other names (hard links): refused");
  if (directory_->own() && info.st_uid != geteuid()) refuse(where, "belongs to another user");
  size_ = static_cast<std::size_t>(info.st_size);
  return true;
}

std::string_view KeyFile::read() {
  if (size_ > largest) {
    throw Error(ErrorKind::wrong_data, directory_->shown(name_) + " is too large to be a lock");
  }
  const auto state =
      read_state([this](auto from, auto size) { return bytes(from, size); }, boot_hash());
  if (!state) {
    throw Error(
        ErrorKind::wrong_data,
        directory_->shown(name_) + " is not a lock of dlock; if it is not needed, remove it");
  }
  header_ = state->header;
  return state->body;
}

std::string_view KeyFile::bytes(std::size_t offset, std::size_t length) {
  content_.resize(std::min(length, size_ - std::min(offset, size_)));
  std::size_t filled = 0;
  while (filled < content_.size()) {
    const ssize_t got = pread(fd_.get(), content_.data() + filled, content_.size() - filled,
                              static_cast<off_t>(offset + filled));
    if (got < 0) throw_errno("cannot read " + directory_->shown(name_));
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
  }
  content_.resize(filled);
  return content_;
}

KeyFile::Boot KeyFile::written_in() const {
  if (header_.sequence == 0) return Boot::current;
  if (header_.boot == 0 || boot_hash() == 0) return Boot::unknown;
  return in_other_boot(header_, boot_hash()) ? Boot::other : Boot::current;
}

void KeyFile::write(std::string_view body, const std::function<void()>& just_before) {
  const NextState next = next_state(header_, body, boot_hash(), apart_, next_apart_);
  write_at(body, next.header.offset);
  just_before();
  write_at({next.slot.data(), next.slot.size()}, next.slot_offset);
  header_ = next.header;
  const std::size_t end =
      std::max({next.header.offset + next.header.length, apart_.end(), next_apart_.end()});
  size_ = std::max(size_, end);
  if (size_ > worth_cutting && end < size_ / 4 &&
      ftruncate(fd_.get(), static_cast<off_t>(end)) == 0) {
    size_ = end;
  }
}

std::string KeyFile::read_apart(Region region, std::uint64_t hash) {
  const auto found = bytes(region.offset, region.length);
  if (found.size() == region.length && block_hash(found) == hash) return std::move(content_);
  if (written_in() == Boot::other) return {};
  throw Error(ErrorKind::wrong_data, directory_->shown(name_) +
                                         " is damaged: its list of waiters is not what was "
                                         "written; if it is not needed, remove it");
}

Region KeyFile::write_apart(std::string_view text, Region there) {
  const Region body{header_.offset, header_.length};
  const std::size_t to_add = text.size() - there.length;
  if (there.length > 0 && free_place(there.end(), to_add, {body}) == there.end()) {
    write_at(text.substr(there.length), there.end());
    next_apart_ = {there.offset, text.size()};
  } else {
    const auto place = free_place(apart_from, text.size(), {body, apart_});
    write_at(text, place);
    next_apart_ = {place, text.size()};
  }
  return next_apart_;
}

void KeyFile::write_at(std::string_view bytes, std::size_t offset) const {
  while (!bytes.empty()) {
    const ssize_t wrote = pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) throw_errno("cannot write " + directory_->shown(name_));
    bytes.remove_prefix(static_cast<std::size_t>(wrote));
    offset += static_cast<std::size_t>(wrote);
  }
}

void KeyFile::touch() const { futimens(fd_.get(), nullptr); }

void KeyFile::remove() { unlinkat(directory_->fd(), name_.c_str(), 0); }

}  // namespace dlock
