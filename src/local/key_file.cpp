#include "local/key_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <initializer_list>

#include "base/error.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"
#include "local/directory.hpp"
#include "local/file_lock.hpp"

namespace dlock {
namespace {

constexpr std::size_t longest_plain_name = 200;
constexpr std::size_t length_of_cut = 150;
/// Precedes the hash of a shortened name; it is encoded everywhere else.
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

std::string fence_file_name(const LockKey& resource) { return file_name(resource, ".fence"); }

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

constexpr std::string_view magic = "dlock\r\n1";
constexpr std::size_t slots_size = 2 * sizeof(Slot);

std::uint64_t hash_of(const Slot& slot) {
  return fnv1a(slot.bytes().substr(0, offsetof(Slot, own_hash)));
}

bool is_whole(const Slot& slot) {
  return slot.bytes().starts_with(magic) && slot.own_hash == hash_of(slot);
}

bool in_other_boot(const Slot& slot, std::uint64_t boot) {
  return slot.boot != 0 && boot != 0 && slot.boot != boot;
}

bool is_content(std::string_view bytes, const Region& region) {
  return bytes.size() == region.length && block_hash(bytes) == region.hash;
}

/// A region for `bytes` after the slots, and apart from those that are `taken`.
Region free_region(std::string_view bytes, std::initializer_list<Region> taken) {
  Region free{slots_size, bytes.size(), block_hash(bytes)};
  const auto overlaps = [&](const Region& other) {
    return other.length > 0 && other.offset < free.end() && free.offset < other.end();
  };
  const auto* found = taken.begin();
  while ((found = std::find_if(taken.begin(), taken.end(), overlaps)) != taken.end()) {
    free.offset = found->end();
  }
  return free;
}

}  // namespace

std::optional<StoredState> read_state(const ReadBytes& read, std::uint64_t boot) {
  Slot slots[2];
  const auto bytes = read(0, sizeof slots);
  // A first write that was cut off counts as no write.
  if (bytes.find_first_not_of('\0') == bytes.npos) return StoredState{};
  std::memcpy(static_cast<void*>(slots), bytes.data(), bytes.size());
  if (slots[0].sequence < slots[1].sequence) std::swap(slots[0], slots[1]);
  bool cut_by_reboot = false;
  for (const Slot& slot : slots) {
    if (!is_whole(slot)) continue;
    const auto body = read(slot.body.offset, slot.body.length);
    if (is_content(body, slot.body)) return StoredState{slot, body};
    cut_by_reboot = cut_by_reboot || in_other_boot(slot, boot);
  }
  if (!cut_by_reboot) return std::nullopt;
  return StoredState{};
}

Slot next_slot(const Slot& current, std::string_view body, std::optional<std::string_view> tail,
               std::uint64_t boot) {
  Slot next;
  std::copy(magic.begin(), magic.end(), next.mark);
  next.sequence = current.sequence + 1;
  next.tail = tail ? free_region(*tail, {current.body, current.tail}) : current.tail;
  next.body = free_region(body, {current.body, current.tail, next.tail});
  next.boot = boot;
  next.own_hash = hash_of(next);
  return next;
}

namespace {

/// A file larger than this is truncated when it is mostly empty.
constexpr std::size_t worth_cutting = 65536;
/// The largest size of a file; a hundred thousand waiters need less.
constexpr std::size_t largest = 64 * 1024 * 1024;

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

[[noreturn]] void refuse(const std::string& where, const char* what) {
  throw Error(ErrorKind::host_refused, where + " " + what);
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

/// Whether a process of this user was killed before it set the permissions of the file.
bool is_half_made(const Fd& file) {
  struct stat info {};
  return fstat(file.get(), &info) == 0 && S_ISREG(info.st_mode) && info.st_nlink == 1 &&
         info.st_uid == geteuid() && info.st_size == 0 && (info.st_mode & 0777) == 0600;
}

/// Opens the file for writing even to read it, if dlock may write to it: NFS grants an exclusive
/// lock on no other descriptor (flock(2)).
OpenedFile open_for(KeyFile::Use use, const Directory& directory, const std::string& name) {
  const auto create = use == KeyFile::Use::create ? std::optional<mode_t>(0600) : std::nullopt;
  OpenedFile file = open_file(directory.fd(), name, O_RDWR, create);
  if (file.fd || use != KeyFile::Use::read) return file;
  const bool may_be_read = errno == EACCES || errno == EPERM || errno == EROFS || errno == EISDIR;
  if (!may_be_read) return file;
  return open_file(directory.fd(), name, O_RDONLY, std::nullopt);
}

/// Returns the open file, and whether it was just created; an empty Fd if there is none.
std::pair<Fd, bool> open_or_create(const Directory& directory, const std::string& name,
                                   KeyFile::Use use, const CallOptions& call_options) {
  while (true) {
    OpenedFile file = open_for(use, directory, name);
    if (file.fd && (file.created || is_half_made(file.fd))) directory.share(file.fd.get());
    if (file.fd) return {std::move(file.fd), file.created};
    if (file.created) throw_errno("cannot make " + directory.shown(name));
    if (errno == ENOENT) return {};
    if (errno == ELOOP) refuse(directory.shown(name), "is a symbolic link: refused");
    if (errno != EACCES || !is_being_made(directory, name)) {
      throw_errno("cannot open " + directory.shown(name));
    }
    wait_a_little(call_options, directory.shown(name));
  }
}

}  // namespace

std::optional<KeyFile> KeyFile::open(const Directory& directory, const std::string& name, Use use,
                                     const CallOptions& call_options) {
  while (true) {
    auto [fd, created] = open_or_create(directory, name, use, call_options);
    if (!fd) return std::nullopt;
    KeyFile file(directory, name, std::move(fd), created);
    if (file.lock_and_check(call_options)) return file;
    wait_a_little(call_options, directory.shown(name));
  }
}

KeyFile::~KeyFile() {
  // Unlock explicitly: a child that another thread just forked has a copy until it execs.
  if (fd_) flock(fd_.get(), LOCK_UN);
}

/// False if the file was removed before it was locked.
bool KeyFile::lock_and_check(const CallOptions& call_options) {
  const std::string where = directory_->shown(name_);
  // Readers also take an exclusive lock: overlapping shared locks would starve a writer.
  if (!lock_file(fd_.get(), call_options, where)) {
    if (readable(call_options.cancel_fd)) throw_interrupted();
    throw Error(ErrorKind::unavailable,
                where + " is in use by another process for too long: is a dlock stopped?");
  }
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
  slot_ = state->slot;
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
  if (slot_.sequence == 0) return Boot::current;
  if (slot_.boot == 0 || boot_hash() == 0) return Boot::unknown;
  return in_other_boot(slot_, boot_hash()) ? Boot::other : Boot::current;
}

std::string_view KeyFile::read_tail() {
  const auto tail = bytes(slot_.tail.offset, slot_.tail.length);
  if (slot_.tail.length == 0 || is_content(tail, slot_.tail)) return tail;
  if (written_in() == Boot::other) return {};
  throw Error(ErrorKind::wrong_data, directory_->shown(name_) +
                                         " is damaged: its list of waiters is not what was "
                                         "written; if it is not needed, remove it");
}

void KeyFile::write(std::string_view body, std::optional<std::string_view> tail,
                    const std::function<void()>& just_before) {
  const Slot next = next_slot(slot_, body, tail, boot_hash());
  if (tail) write_at(*tail, next.tail.offset);
  write_at(body, next.body.offset);
  just_before();
  write_at(next.bytes(), next.offset());
  slot_ = next;
  const std::size_t end = std::max(next.body.end(), next.tail.end());
  size_ = std::max(size_, end);
  if (size_ > worth_cutting && end < size_ / 4 &&
      ftruncate(fd_.get(), static_cast<off_t>(end)) == 0) {
    size_ = end;
  }
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
