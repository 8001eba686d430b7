#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "local/directory.hpp"
#include "local/key_file.hpp"
#include "local/open_key.hpp"
#include "lock/latch.hpp"
namespace dlock {

/// A latch as its file holds it.
struct StoredLatch {
  std::int64_t count = 0;
  microseconds ends{0};       ///< on BootClock
  microseconds wall_ends{0};  ///< the same by the wall clock, for when the host was booted since
  std::vector<ArrivalId> arrived;
  std::vector<std::string> mailboxes;  ///< of those who wait

  LatchState state(const Now& now) const;
};

/// The file of one latch, locked for as long as this lives. What has ended, and whoever has ceased
/// to wait, is not there any more.
class LatchFile {
 public:
  /// Nothing if there is no file and `use` makes none. Throws Error{wrong_data} for a foreign file.
  static std::optional<LatchFile> open(const Directory& directory, const LockKey& key,
                                       KeyFile::Use use, const CallOptions& call_options);

  std::optional<StoredLatch> latch;
  Now now;

  /// Writes `latch`; with `wake`, all who wait are told to look.
  void save(bool wake);
  /// Takes the file away: the latch has ended.
  void remove() { file_.remove(); }
  bool created() const { return file_.created(); }

 private:
  LatchFile(const Directory& directory, LockKey key, KeyFile file)
      : directory_(directory), key_(std::move(key)), file_(std::move(file)) {}
  void load();

  const Directory& directory_;
  LockKey key_;
  KeyFile file_;
};

struct NamedLatch {
  LockKey key;
  StoredLatch latch;
};

/// The latch in `file`, whatever its name, its end brought to this boot's clock; nothing where none
/// was ever written. Throws Error{wrong_data} if it holds anything else; `where` names it.
std::optional<NamedLatch> read_latch(KeyFile& file, const Now& now, const std::string& where);

}  // namespace dlock
