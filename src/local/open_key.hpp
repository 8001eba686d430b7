#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "local/dead_holders.hpp"
#include "local/directory.hpp"
#include "local/key_file.hpp"
#include "local/wake_fifo.hpp"
#include "lock/store.hpp"
#include "rule/lock_table.hpp"
#include "rule/table_text.hpp"

namespace dlock {

/// The waiters after the first few, in a part of the key's file that a hand-over does not touch. It
/// is read and written only when one of them joins, leaves or becomes one of the first.
class WaiterTail {
 public:
  /// Takes the location of these waiters from the table's text.
  void found(const MoreWaiters& more) { stored_ = more; }

  /// Whether there are waiters that load() has not loaded yet.
  bool has_more() const { return was_read_ ? parsed_ < text_.size() : stored_.length > 0; }

  /// Appends up to `most` waiters to the queue of the table. Throws Error{wrong_data}.
  void load(std::size_t most, KeyFile& file, const std::string& where, LockTable& table);

  /// Returns the text of a table with all its waiters, loaded or not. It first writes those that
  /// the text leaves out.
  std::string write_beside(const LockKey& key, const LockTable& table, KeyFile& file);

 private:
  MoreWaiters write(const std::string& next, KeyFile& file) const;

  MoreWaiters stored_;
  std::string text_;
  bool was_read_ = false;
  std::size_t parsed_ = 0;  ///< how many bytes of text_ are parsed
};

/// Notifies other processes: it opens their FIFOs at once, and writes into them in deliver().
class FifoNotifier final : public WaiterNotifier {
 public:
  explicit FifoNotifier(const Directory& directory) : directory_(directory) {}
  bool wake(const WaiterEntry& waiter, const Message& message) override;
  /// Only the first waiter must know when the obstacle ends: each other waiter watches the one
  /// before it.
  WakeWindow first_few() const override { return {1, 1}; }
  /// The waiter confirms its hold before it starts its command.
  milliseconds provisional_lease() const override { return milliseconds(2000); }
  /// Notifies a waiter that another one is before it now.
  bool tell_moved(const WaiterEntry& waiter);
  /// Notifies a holder that its hold was evicted.
  void tell(const HolderIdentity& thrown_out);
  bool was_woken(const Token& token) const { return woken_.contains(token); }
  /// Writes the collected notifications. The FIFOs stay open until this object ends, unless there
  /// are very many.
  void deliver();

 private:
  bool knock(const WaiterEntry& waiter, News news);
  void write_later(Fd mailbox, News news);

  const Directory& directory_;
  std::set<Token> woken_;
  std::vector<std::pair<Fd, News>> open_;
  std::size_t delivered_ = 0;  ///< how many of them have been written to
};

/// One key with its file locked and its table updated from the processes. A caller that changes the
/// table must call save(); otherwise nothing is written.
class OpenKey {
 public:
  /// Returns nothing if the key has no file and `use` creates none. `self`: the token of the
  /// caller.
  static std::optional<OpenKey> open(const Directory& directory, const LockKey& key,
                                     KeyFile::Use use, const Token& self,
                                     const CallOptions& call_options);

  LockTable table;
  Now now;
  FifoNotifier knocks;

  /// Finishes the work on the queue if `more` is set, notifies every waiter whose predecessor has
  /// changed, and writes the table. `self` gets no notification.
  void save(const Token& self, bool more);

  void touch() const { file_.touch(); }
  bool created() const { return file_.created(); }
  /// Why it is unknown whether one of the holders still runs; empty if it is known of all.
  const std::string& undecided() const { return undecided_; }
  /// The time until the first lease ends; holds of living processes have none.
  std::optional<milliseconds> until_next_end() const;

 private:
  OpenKey(const Directory& directory, LockKey key, KeyFile file)
      : knocks(directory), directory_(directory), key_(std::move(key)), file_(std::move(file)) {}
  /// The parts of a table that the rules may change, without its texts. Each request of a waiter
  /// changes its `seen`.
  struct Standing {
    struct Place {
      std::uint64_t token;  ///< hash of the token
      Ticket ticket;
      microseconds seen;
      microseconds told;
      bool operator==(const Place&) const = default;
    };
    explicit Standing(const LockTable& table);
    void append(const WaiterEntry& waiter);
    bool operator==(const Standing&) const = default;
    std::vector<HoldEntry> holds;
    std::vector<Place> queue;
    Fence last_fence;
    microseconds last_ask;
  };

  void load(const Token& self);
  void load_waiters(std::size_t most);
  void take(Refreshed refreshed);
  bool notify_new_predecessors(const Token& self);
  void work_on_queue(const Token& self, bool more);
  bool last_loaded_has_stayed() const;

  const Directory& directory_;
  LockKey key_;
  KeyFile file_;
  Standing before_{table};
  WaiterTail tail_;
  bool changed_ = false;
  std::string undecided_;
  std::vector<std::string> left_mailboxes_;
};

/// The current time of both clocks that the rules use.
Now now_here();

}  // namespace dlock
