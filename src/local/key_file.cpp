#include "local/key_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <initializer_list>

#include "base/error.hpp"
#include "base/text.hpp"
#include "local/directory.hpp"

namespace dlock {
namespace {

constexpr std::string_view magic = "dlock\r\n1";
constexpr std::size_t slots_size = 2 * sizeof(Slot);
/// The largest size of a file; a hundred thousand waiters need less.
constexpr std::size_t largest = 64 * 1024 * 1024;

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

/// Whether a process of this user was killed before it set the permissions of the file.
bool is_half_made(const struct stat& info) {
  return info.st_uid == geteuid() && info.st_size == 0 && (info.st_mode & 0777) == 0600;
}

}  // namespace

std::optional<StoredState> read_state(const ReadBytes& read, std::uint64_t boot) {
  Slot slots[2];
  const auto bytes = read({0, sizeof slots});
  // A first write that was cut off counts as no write.
  if (bytes.find_first_not_of('\0') == bytes.npos) return StoredState{};
  std::memcpy(static_cast<void*>(slots), bytes.data(), bytes.size());
  if (slots[0].sequence < slots[1].sequence) std::swap(slots[0], slots[1]);
  bool cut_by_reboot = false;
  for (const Slot& slot : slots) {
    if (!is_whole(slot)) continue;
    const auto body = read(slot.body);
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

std::optional<KeyFile> KeyFile::open(const Directory& directory, const std::string& name, Use use,
                                     const CallOptions& call_options) {
  auto file = LockedFile::open(directory, name, directory.shown(name), use, call_options);
  if (!file) return std::nullopt;
  if (file->info().st_nlink > 1) {
    throw Error(ErrorKind::host_refused, file->where() + " has other names (hard links): refused");
  }
  if (directory.own() && file->info().st_uid != geteuid()) {
    throw Error(ErrorKind::host_refused, file->where() + " belongs to another user");
  }
  if (is_half_made(file->info())) directory.share(file->fd());
  return KeyFile(directory, name, std::move(*file));
}

std::string_view KeyFile::read() {
  if (size_ > largest) {
    throw Error(ErrorKind::wrong_data, file_.where() + " is too large to be a lock");
  }
  const auto state =
      read_state([this](const Region& region) { return bytes(region); }, boot_hash());
  if (!state) {
    throw Error(ErrorKind::wrong_data,
                file_.where() + " is not a lock of dlock; if it is not needed, remove it");
  }
  slot_ = state->slot;
  return state->body;
}

std::string_view KeyFile::bytes(const Region& region) {
  const std::size_t offset = std::min<std::size_t>(region.offset, size_);
  file_.read(offset, std::min<std::size_t>(region.length, size_ - offset), content_);
  return content_;
}

KeyFile::Boot KeyFile::written_in() const {
  if (slot_.sequence == 0) return Boot::current;
  if (slot_.boot == 0 || boot_hash() == 0) return Boot::unknown;
  return in_other_boot(slot_, boot_hash()) ? Boot::other : Boot::current;
}

std::string_view KeyFile::read_tail() {
  const auto tail = bytes(slot_.tail);
  if (slot_.tail.length == 0 || is_content(tail, slot_.tail)) return tail;
  if (written_in() == Boot::other) return {};
  throw Error(ErrorKind::wrong_data, file_.where() +
                                         " is damaged: its list of waiters is not what was "
                                         "written; if it is not needed, remove it");
}

void KeyFile::write(std::string_view body, std::optional<std::string_view> tail,
                    const std::function<void()>& just_before) {
  const Slot next = next_slot(slot_, body, tail, boot_hash());
  if (tail) file_.write(*tail, next.tail.offset);
  file_.write(body, next.body.offset);
  just_before();
  file_.write(next.bytes(), next.offset());
  slot_ = next;
  size_ = std::max<std::size_t>({size_, next.body.end(), next.tail.end()});
}

void KeyFile::touch() const { futimens(file_.fd(), nullptr); }

void KeyFile::remove() { unlinkat(directory_->fd(), name_.c_str(), 0); }

}  // namespace dlock
