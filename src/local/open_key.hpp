#pragma once

#include <functional>
#include <optional>
#include <string>

#include "local/dead_holders.hpp"
#include "local/directory.hpp"
#include "local/key_file.hpp"
#include "local/wake_fifo.hpp"
#include "lock/store.hpp"
#include "rule/lock_table.hpp"

namespace dlock {

/// One key with its file locked and its table updated from the processes. A caller that changes the
/// table must call save(); otherwise nothing is written.
///
/// In a long queue, the waiters after the first few are in the tail of the file. A hand-over reads
/// and writes the tail only when the last of the first few leaves.
class OpenKey {
 public:
  /// Returns nothing if the key has no file and `use` creates none. `self`: the token of the
  /// caller.
  static std::optional<OpenKey> open(const Directory& directory, const LockKey& key,
                                     KeyFile::Use use, const Token& self,
                                     const CallOptions& call_options);

  /// Opens the file of this name, whichever key it contains; `key` is empty before the first write.
  static std::optional<OpenKey> open_file(const Directory& directory, const std::string& name,
                                          KeyFile::Use use, const Token& self,
                                          const CallOptions& call_options);

  LockKey key;
  LockTable table;
  Now now;
  FifoNotifier notifier;
  KeyFile file;

  /// Notifies every waiter whose predecessor has changed, and writes the table if it has changed.
  /// `self` gets no notification.
  void save(const Token& self);
  /// Writes the table. `just_before` runs directly before the last step.
  void write(const std::function<void()>& just_before);

  /// Whether nobody holds the key or waits for it.
  bool is_unused() const;
  /// Why dlock cannot tell whether a holder still runs; empty if it can for every holder.
  const std::string& undecided() const { return undecided_; }
  /// The time until the first lease ends; holds of living processes have none.
  std::optional<milliseconds> until_next_end() const;

 private:
  OpenKey(const Directory& directory, KeyFile opened)
      : notifier(directory), file(std::move(opened)), directory_(directory) {}

  void load(const std::string& where, const Token& self);
  void load_tail(const std::string& where);
  void refresh_for(const Token& self);
  void notify_new_predecessors(const Token& self);
  bool notify_or_drop(const Token& self);

  const Directory& directory_;
  LockTable before_;             ///< as read and refreshed
  bool tail_is_loaded_ = false;  ///< the queue of the table has the waiters in the tail
  bool changed_ = false;
  std::string undecided_;
};

/// The current time of both clocks that the rules use.
Now now_here();

}  // namespace dlock
