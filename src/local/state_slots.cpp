#include "local/state_slots.hpp"

#include <algorithm>
#include <cstring>

#include "base/text.hpp"

namespace dlock {
namespace {

constexpr std::string_view magic = "dlock\r\n1";

/// The slot as it lies in the file, in the byte order of the machine: the file never leaves it.
struct RawSlot {
  char mark[8];
  SlotHeader header;
  std::uint64_t body_hash;
  std::uint64_t spare;
  std::uint64_t own_hash;
};
static_assert(sizeof(RawSlot) == slot_size);
constexpr std::size_t hashed_size = slot_size - sizeof(std::uint64_t);

std::array<RawSlot, 2> raw_slots(const ReadBytes& read) {
  std::array<RawSlot, 2> slots{};
  const auto bytes = read(0, slots_size);
  std::memcpy(slots.data(), bytes.data(), bytes.size());
  return slots;
}

std::uint64_t hash_of(const RawSlot& slot) {
  return fnv1a({reinterpret_cast<const char*>(&slot), hashed_size});
}

bool is_whole(const RawSlot& slot) {
  return std::string_view(slot.mark, sizeof slot.mark) == magic && slot.own_hash == hash_of(slot);
}

bool is_blank(std::string_view bytes) { return bytes.find_first_not_of('\0') == bytes.npos; }

/// The first bytes of a slot, and nothing behind: its writer was killed.
bool is_torn(const RawSlot& slot) {
  const std::string_view bytes(reinterpret_cast<const char*>(&slot), slot_size);
  const auto marked = std::mismatch(magic.begin(), magic.end(), bytes.begin()).second;
  if (marked != bytes.begin() + magic.size()) return is_blank({marked, bytes.end()});
  const std::uint64_t right = hash_of(slot);
  const std::string_view right_bytes(reinterpret_cast<const char*>(&right), sizeof right);
  const auto stored = bytes.substr(hashed_size);
  const auto differs = std::mismatch(right_bytes.begin(), right_bytes.end(), stored.begin()).second;
  return is_blank({differs, stored.end()});
}

std::optional<std::string_view> body_of(const RawSlot& slot, const ReadBytes& read) {
  const auto body = read(slot.header.offset, slot.header.length);
  if (body.size() != slot.header.length || block_hash(body) != slot.body_hash) return std::nullopt;
  return body;
}

}  // namespace

bool in_other_boot(const SlotHeader& header, std::uint64_t boot) {
  return header.boot != 0 && boot != 0 && header.boot != boot;
}

std::optional<StoredState> read_state(const ReadBytes& read, std::uint64_t boot) {
  auto slots = raw_slots(read);
  const std::string_view second(reinterpret_cast<const char*>(&slots[1]), slot_size);
  if (is_torn(slots[0]) && is_blank(second) && !is_whole(slots[0])) return StoredState{};
  if (slots[0].header.sequence < slots[1].header.sequence) std::swap(slots[0], slots[1]);
  bool cut_by_reboot = false;
  for (const RawSlot& slot : slots) {
    if (!is_whole(slot)) continue;
    if (const auto body = body_of(slot, read)) return StoredState{slot.header, *body};
    cut_by_reboot = cut_by_reboot || in_other_boot(slot.header, boot);
  }
  if (!cut_by_reboot) return std::nullopt;
  return StoredState{};
}

std::uint64_t free_place(std::uint64_t from, std::uint64_t length,
                         std::initializer_list<Region> taken) {
  const auto in_the_way = [&](const Region& region) {
    return region.length > 0 && region.offset < from + length && from < region.end();
  };
  const auto* found = taken.begin();
  while ((found = std::find_if(taken.begin(), taken.end(), in_the_way)) != taken.end()) {
    from = found->end();
  }
  return from;
}

NextState next_state(const SlotHeader& current, std::string_view body, std::uint64_t boot,
                     Region apart, Region also_apart) {
  NextState next;
  const Region current_body{current.offset, current.length};
  next.header.sequence = current.sequence + 1;
  next.header.offset = free_place(slots_size, body.size(), {current_body, apart, also_apart});
  next.header.length = body.size();
  next.header.boot = boot;
  next.slot_offset = current.sequence % 2 * slot_size;
  RawSlot slot{};
  std::copy(magic.begin(), magic.end(), slot.mark);
  slot.header = next.header;
  slot.body_hash = block_hash(body);
  slot.own_hash = hash_of(slot);
  std::memcpy(next.slot.data(), &slot, slot_size);
  return next;
}

}  // namespace dlock
