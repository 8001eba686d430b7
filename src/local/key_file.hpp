#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "local/directory.hpp"
#include "local/locked_file.hpp"
#include "lock/claim.hpp"
#include "lock/store.hpp"

namespace dlock {

/// A part of a file.
struct Region {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;  ///< 0: there is none
  std::uint64_t hash = 0;
  std::uint64_t end() const { return offset + length; }
};

/// Says where the state of a file is, in the machine's own byte order: no other machine uses the
/// file. Each file begins with two slots, for the current state and the previous one. A writer
/// writes the next state without overwriting the current one, and then replaces the older slot, so
/// that one complete state remains whenever the writer is killed. A reboot ends every process
/// anyway, so nothing is synced to disk.
struct Slot {
  char mark[8] = {};
  std::uint64_t sequence = 0;  ///< the larger one is current; 0: nothing was written yet
  Region body;
  Region tail;             ///< a part that is read and written only if needed
  std::uint64_t boot = 0;  ///< boot_hash() of the writer, 0 if unknown
  std::uint64_t own_hash = 0;

  std::string_view bytes() const { return {reinterpret_cast<const char*>(this), sizeof(Slot)}; }
  std::size_t offset() const { return (sequence - 1) % 2 * sizeof(Slot); }
};

/// The content of a file without its tail.
struct StoredState {
  Slot slot;
  std::string_view body;
};

/// Returns the bytes of a region of a file, as far as it has them; valid until the next call.
using ReadBytes = std::function<std::string_view(const Region& region)>;

/// The state of a file; nothing if the file is not ours or is damaged. The body is the last result
/// of `read`. An incomplete body that another boot wrote counts as not written, because a power cut
/// may have torn it; if either boot is unknown, the file counts as damaged.
std::optional<StoredState> read_state(const ReadBytes& read, std::uint64_t boot);

/// The slot of the next state. Without `tail`, the next state keeps the current tail.
Slot next_slot(const Slot& current, std::string_view body, std::optional<std::string_view> tail,
               std::uint64_t boot);

/// The file of one key or latch, locked (flock(2)) as long as this object exists.
class KeyFile {
 public:
  using Use = LockedFile::Use;

  /// Opens and locks the file like LockedFile. Refuses a file that has other names (hard links), or
  /// that is another user's although the directory is the caller's own.
  static std::optional<KeyFile> open(const Directory& directory, const std::string& name, Use use,
                                     const CallOptions& call_options);

  /// The state; empty before the first write. Throws Error{wrong_data} for a foreign file.
  std::string_view read();

  /// The boot in which the result of read() was written: `unknown` if its writer or this process
  /// cannot read the kernel's boot id.
  enum class Boot { current, other, unknown };
  Boot written_in() const;

  /// The tail of the state. Throws Error{wrong_data} if it is damaged. A damaged tail of another
  /// boot counts as empty instead: a power cut has torn it. Invalidates the result of read().
  std::string_view read_tail();

  /// Replaces the result of read() and, if there is a `tail`, that of read_tail(). `just_before`
  /// runs directly before the last step, which cannot run out of space. Throws Error{host_refused},
  /// and the old state then remains.
  void write(std::string_view body, std::optional<std::string_view> tail,
             const std::function<void()>& just_before);

  /// Updates the file's times, so that a cleaner of old files leaves it.
  void touch() const;
  /// Removes the file; processes that wait for its lock notice the removal and open a new file.
  void remove();

  bool created() const { return file_.created(); }

 private:
  KeyFile(const Directory& directory, std::string name, LockedFile file)
      : directory_(&directory),
        name_(std::move(name)),
        file_(std::move(file)),
        size_(static_cast<std::size_t>(file_.info().st_size)) {}
  std::string_view bytes(const Region& region);

  const Directory* directory_;
  std::string name_;
  LockedFile file_;
  std::size_t size_;
  std::string content_;
  Slot slot_;
};

}  // namespace dlock
