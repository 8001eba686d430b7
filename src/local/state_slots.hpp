#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string_view>

namespace dlock {

/// Describes the state that a file contains: one of two slots at its start, each of 64 bytes.
struct SlotHeader {
  std::uint64_t sequence = 0;  ///< the larger one is valid
  std::uint64_t offset = 0;    ///< where the body starts
  std::uint64_t length = 0;
  std::uint64_t boot = 0;  ///< boot_hash() of the writer, 0 if unknown
  bool operator==(const SlotHeader&) const = default;
};

/// Whether a state was written in another boot than `boot`; false if either is unknown.
bool in_other_boot(const SlotHeader& header, std::uint64_t boot);

constexpr std::size_t slot_size = 64;
constexpr std::size_t slots_size = 2 * slot_size;

/// The content of a file.
struct StoredState {
  SlotHeader header;  ///< sequence 0: nothing was written yet
  std::string_view body;
};

/// Returns up to `length` bytes of a file from `offset` on; valid until the next call.
using ReadBytes = std::function<std::string_view(std::size_t offset, std::size_t length)>;

/// The state of a file; nothing if the file is not ours or is damaged. The body is the last result
/// of `read`.
///
/// A writer puts the body into space that the current body leaves free, and then writes one slot,
/// so that one complete state remains whenever the writer is killed. A first write that was cut off
/// counts as no write. A reboot ends every process anyway, so nothing is synced to disk. A body
/// torn by a power cut also counts as not written if it is of another boot than this one, but not
/// if either boot is unknown.
std::optional<StoredState> read_state(const ReadBytes& read, std::uint64_t boot);

/// A range of bytes in a file.
struct Region {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::uint64_t end() const { return offset + length; }
};

/// The first offset from `from` on with `length` bytes free of the `taken` regions.
std::uint64_t free_place(std::uint64_t from, std::uint64_t length,
                         std::initializer_list<Region> taken);

/// The location and slot of the next state.
struct NextState {
  SlotHeader header;
  std::size_t slot_offset = 0;
  std::array<char, slot_size> slot{};  ///< must be written last
};
/// `apart` and `also_apart` are the other regions that the current or the next state describes.
NextState next_state(const SlotHeader& current, std::string_view body, std::uint64_t boot,
                     Region apart = {}, Region also_apart = {});

}  // namespace dlock
