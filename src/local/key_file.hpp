#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/fd.hpp"
#include "local/directory.hpp"
#include "local/state_slots.hpp"
#include "lock/claim.hpp"
#include "lock/store.hpp"

namespace dlock {

/// The suffixes of every key's and every latch's file. Apart from them, only the FIFOs of waiters
/// and the fence files of `guard` belong to dlock.
constexpr std::string_view key_suffix = ".dlock";
constexpr std::string_view latch_suffix = ".latch";

/// The file name of `key`: the key percent-encoded, so that it is readable; a long one is shortened
/// and ends in a hash. The file contains the whole key, and that decides.
std::string key_file_name(const LockKey& key);
/// The file name of the latch of this key.
std::string latch_file_name(const LockKey& key);

/// The name of the file with the largest fence that a resource has seen; it is never cleaned up.
std::string fence_file_name(const LockKey& resource);

/// The key that belongs to a file name of a lock or latch; nothing for a shortened or other name.
std::optional<LockKey> key_of_file_name(std::string_view name);

/// Whether a file of this name is for a key, or for a latch.
bool is_key_file_name(std::string_view name);
bool is_latch_file_name(std::string_view name);

/// The file of one key. It is locked from open() to the end of its scope, so keep that short. dlock
/// reads and changes a key of this host only while it has this lock.
class KeyFile {
 public:
  enum class Use {
    read,    ///< no permission to write needed
    change,  ///< for reading and writing
    create,  ///< like `change`, and a missing file is created
  };

  /// Returns nothing if there is no such file. Throws Error{host_refused} unless it is a plain file
  /// without other names (not a link, a directory or a FIFO; in an own directory also not another
  /// user's). Throws as CallOptions says if another process keeps it locked.
  static std::optional<KeyFile> open(const Directory& directory, const std::string& name, Use use,
                                     const CallOptions& call_options);

  KeyFile(KeyFile&&) noexcept = default;
  KeyFile& operator=(KeyFile&&) = delete;
  ~KeyFile();

  /// The state; empty before the first write. Throws Error{wrong_data} for a foreign file.
  std::string_view read();

  /// The boot in which the result of read() was written: `unknown` if its writer or this process
  /// cannot read the kernel's boot id.
  enum class Boot { current, other, unknown };
  Boot written_in() const;

  /// Replaces the result of read(). `just_before` runs directly before the last step, which cannot
  /// run out of space. Throws Error{host_refused}, and the old state then remains.
  void write(std::string_view body, const std::function<void()>& just_before);

  /// Reads a region that the state describes. If its bytes do not match `hash` in a file of this
  /// boot, the file is damaged: throws Error{wrong_data}. In a file of another boot, a power cut
  /// has torn them: returns an empty string. The result of read() is invalid afterwards.
  std::string read_apart(Region region, std::uint64_t hash);

  /// Keeps this region, which the result of read() describes, unchanged until the next write().
  void keep_apart(Region region) { apart_ = region; }

  /// Writes a text that the next state will describe, and returns its region. `there` is the end
  /// part of the kept region that already contains the first bytes of the text.
  Region write_apart(std::string_view text, Region there);

  /// Updates the file's times, so that a cleaner of old files leaves it.
  void touch() const;
  /// Removes the file; processes that wait for its lock notice it and open a new one.
  void remove();

  bool created() const { return created_; }

 private:
  KeyFile(const Directory& directory, std::string name, Fd fd, bool created)
      : directory_(&directory), name_(std::move(name)), fd_(std::move(fd)), created_(created) {}
  bool lock_and_check(const CallOptions& call_options);
  std::string_view bytes(std::size_t offset, std::size_t length);
  void write_at(std::string_view bytes, std::size_t offset) const;

  const Directory* directory_;
  std::string name_;
  Fd fd_;
  bool created_;
  std::size_t size_ = 0;
  std::string content_;
  SlotHeader header_;
  Region apart_;       ///< the region of the state that was read
  Region next_apart_;  ///< the region of the state to be written
};

}  // namespace dlock
