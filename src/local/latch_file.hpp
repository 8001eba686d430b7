#pragma once

#include <optional>
#include <string>
#include <vector>

#include "local/directory.hpp"
#include "local/key_file.hpp"
#include "local/open_key.hpp"
#include "lock/latch.hpp"

namespace dlock {

/// A latch as stored in its file.
struct StoredLatch {
  LockKey key;
  std::int64_t count = 0;
  microseconds ends{0};       ///< on BootClock
  microseconds wall_ends{0};  ///< the same by the wall clock, for use after a reboot
  std::vector<ArrivalId> arrived;
  std::vector<std::string> mailboxes;  ///< the FIFOs of the waiters
};

/// The file of one latch, locked for the lifetime of this object. save() removes the waiters that
/// have ended.
class LatchFile {
 public:
  /// Returns nothing if there is no file and `use` creates none. Throws Error{wrong_data} for a
  /// foreign file.
  static std::optional<LatchFile> open(const Directory& directory, const LockKey& key,
                                       KeyFile::Use use, const CallOptions& call_options);

  /// Opens the file of this name, whichever key its latch belongs to.
  static std::optional<LatchFile> open_file(const Directory& directory, const std::string& name,
                                            KeyFile::Use use, const CallOptions& call_options);

  std::optional<StoredLatch> latch;  ///< nothing before the first write and after its expiry
  Now now;
  KeyFile file;
  /// The state of `latch`, which must exist.
  LatchState state() const;

  /// Writes `latch`; with `wake`, also wakes all waiters.
  void save(bool wake);

 private:
  LatchFile(const Directory& directory, KeyFile opened)
      : file(std::move(opened)), directory_(directory) {}

  const Directory& directory_;
};

}  // namespace dlock
