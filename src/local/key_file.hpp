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

/// End the names of every key's file and of every latch's. Of what ends otherwise in the directory
/// only the FIFOs of waiters and the fence files of `guard` are dlock's.
constexpr std::string_view key_suffix = ".dlock";
constexpr std::string_view latch_suffix = ".latch";

/// The name of the file of `key`: the key percent-encoded, so that people can read it; a long one
/// is cut and ends in a hash. The whole key stands inside the file, which decides.
std::string key_file_name(const LockKey& key);
/// The same of the latch of this key.
std::string latch_file_name(const LockKey& key);

/// The same for the file with the largest fence that came to a resource; nobody tidies it up.
std::string fence_file_name(const LockKey& resource);

/// The key that a file of either name is for; nothing if the name was cut, or is of neither.
std::optional<LockKey> key_of_file_name(std::string_view name);

/// Whether a file of this name is for a key at all, or for a latch.
bool is_key_file_name(std::string_view name);
bool is_latch_file_name(std::string_view name);

/// The file of one key, locked from open() until it goes out of scope, so keep it short. All of
/// dlock's reading and changing of a key on this host happens inside one.
class KeyFile {
 public:
  enum class Use {
    read,    ///< without the right to write it
    change,  ///< to write it
    create,  ///< as change, and made if it is not there
  };

  /// Nothing if there is no such file. Throws Error{host_refused} for what is not a plain file of
  /// its own (a link, a directory, a FIFO; in an own directory another user's), and as CallOptions
  /// says if somebody else keeps it locked.
  static std::optional<KeyFile> open(const Directory& directory, const std::string& name, Use use,
                                     const CallOptions& call_options);

  KeyFile(KeyFile&&) noexcept = default;
  KeyFile& operator=(KeyFile&&) = delete;
  ~KeyFile();

  /// The state; empty if none was ever written. Throws Error{wrong_data} for a foreign file.
  std::string_view read();

  /// When read()'s answer was written: `unknown` if its writer or this process cannot read the
  /// kernel's boot id.
  enum class Boot { current, other, unknown };
  Boot written_in() const;

  /// Replaces what read() answered; `just_before` runs when nothing but the last step, which cannot
  /// run out of space, is left to do. Throws Error{host_refused}, and then the old state stands.
  void write(std::string_view body, const std::function<void()>& just_before);

  /// What lies in the file apart from its state, which tells of it. A file of this boot that holds
  /// other bytes there is damaged: throws Error{wrong_data}; of another boot, a power cut has torn
  /// them: empty. What read() answered is gone after it.
  std::string read_apart(Region region, std::uint64_t hash);

  /// What read() answered tells of this region: until the next write() it stays as it is.
  void keep_apart(Region region) { apart_ = region; }

  /// Writes a text that the next state is to tell of, and answers where. The first bytes of it, as
  /// many as `there` is long, lie in that part of the region kept apart, at its end.
  Region write_apart(std::string_view text, Region there);

  /// So that a cleaner of old files leaves it.
  void touch() const;
  /// Takes the file away; who waits for its lock meanwhile finds out and opens anew.
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
  Region apart_;       ///< of the state that was read
  Region next_apart_;  ///< of the one to be written
};

}  // namespace dlock
