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

/// A latch as stored in its file.
struct StoredLatch {
  std::int64_t count = 0;
  microseconds ends{0};       ///< on BootClock
  microseconds wall_ends{0};  ///< the same by the wall clock, for use after a reboot
  std::vector<ArrivalId> arrived;
  std::vector<std::string> mailboxes;  ///< the FIFOs of the waiters

  LatchState state(const Now& now) const;
};

/// The file of one latch, locked for the lifetime of this object. Expired latches and waiters that
/// have ended are removed from it.
class LatchFile {
 public:
  /// Returns nothing if there is no file and `use` creates none. Throws Error{wrong_data} for a
  /// foreign file.
  static std::optional<LatchFile> open(const Directory& directory, const LockKey& key,
                                       KeyFile::Use use, const CallOptions& call_options);

  std::optional<StoredLatch> latch;
  Now now;

  /// Writes `latch`; with `wake`, all waiters are woken.
  void save(bool wake);
  /// Removes the file: the latch has expired.
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

/// The latch in `file`, whatever its file name, with its expiry converted to this boot's clock;
/// nothing before the first write. Throws Error{wrong_data} if the file contains anything else;
/// `where` names it.
std::optional<NamedLatch> read_latch(KeyFile& file, const Now& now, const std::string& where);

}  // namespace dlock
