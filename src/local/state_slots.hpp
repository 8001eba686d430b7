#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string_view>

namespace dlock {

/// Describes the state that a file holds: one of two slots at its start, each of 64 bytes.
struct SlotHeader {
  std::uint64_t sequence = 0;  ///< the larger one counts
  std::uint64_t offset = 0;    ///< of the body
  std::uint64_t length = 0;
  std::uint64_t boot = 0;  ///< boot_hash() of the writer, 0 if it was unknown
  bool operator==(const SlotHeader&) const = default;
};

/// Whether a state was written in another boot than `boot`; false if either is unknown.
bool in_other_boot(const SlotHeader& header, std::uint64_t boot);

constexpr std::size_t slot_size = 64;
constexpr std::size_t slots_size = 2 * slot_size;

/// What a file says.
struct StoredState {
  SlotHeader header;  ///< sequence 0: nothing was written yet
  std::string_view body;
};

/// The bytes of a file from `offset` on, so many or as many as there are; good until the next call.
using ReadBytes = std::function<std::string_view(std::size_t offset, std::size_t length)>;

/// The state of a file; nothing if the file is not ours or is damaged. What earlier states have
/// left in it is not read; the body is what `read` answered last. The body goes into space that the
/// current body leaves free, and after it one slot, so whatever byte a writer is killed at, one
/// whole state remains. A first write that never ended reads as nothing written. Nothing is synced
/// to disk: a reboot ends every process anyway, and a body that a power cut has torn, written
/// in another boot than this one, reads as nothing written too; not if either boot is unknown.
std::optional<StoredState> read_state(const ReadBytes& read, std::uint64_t boot);

/// So many bytes of a file from there on.
struct Region {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::uint64_t end() const { return offset + length; }
};

/// The first place from `from` on with room for `length` bytes beside what is taken.
std::uint64_t free_place(std::uint64_t from, std::uint64_t length,
                         std::initializer_list<Region> taken);

/// Where the next state goes.
struct NextState {
  SlotHeader header;
  std::size_t slot_offset = 0;
  std::array<char, slot_size> slot{};  ///< to be written last
};
/// `apart`: what else of the file the current state or the next one tells of.
NextState next_state(const SlotHeader& current, std::string_view body, std::uint64_t boot,
                     Region apart = {}, Region also_apart = {});

}  // namespace dlock
