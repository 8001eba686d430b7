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

/// The waiters beyond the first few, in a part of a key's file that no hand-over touches: it is
/// read and written when one of them joins, leaves or becomes one of the first.
class WaiterTail {
 public:
  /// Takes over the line of the table's text that tells of it.
  void found(const MoreWaiters& more) { stored_ = more; }

  /// Whether waiters are left that load() has not yet brought.
  bool has_more() const { return was_read_ ? parsed_ < text_.size() : stored_.length > 0; }

  /// Appends up to `most` of them to the queue of the table. Throws Error{wrong_data}.
  void load(std::size_t most, KeyFile& file, const std::string& where, LockTable& table);

  /// The text of a table whose waiters load() had to bring or not, with all of them; those it
  /// leaves out are written first.
  std::string write_beside(const LockKey& key, const LockTable& table, KeyFile& file);

 private:
  MoreWaiters write(const std::string& next, KeyFile& file) const;

  MoreWaiters stored_;
  std::string text_;
  bool was_read_ = false;
  std::size_t parsed_ = 0;  ///< bytes of the text
};

/// The way to other processes: opens their mailboxes, and writes into them when told.
class FifoNotifier final : public WaiterNotifier {
 public:
  explicit FifoNotifier(const Directory& directory) : directory_(directory) {}
  bool wake(const WaiterEntry& waiter, const Message& message) override;
  /// Each waiter watches the one before it.
  WakeWindow first_few() const override { return {1, 1}; }
  /// It confirms before its command is started.
  milliseconds provisional_lease() const override { return milliseconds(2000); }
  /// It stands behind another than before.
  bool tell_moved(const WaiterEntry& waiter);
  /// A holder: its hold has been taken from it.
  void tell(const HolderIdentity& thrown_out);
  bool was_woken(const Token& token) const { return woken_.contains(token); }
  /// Writes what was to be told. The mailboxes stay open until this object ends, unless they are
  /// very many.
  void deliver();

 private:
  bool knock(const WaiterEntry& waiter, News news);
  void write_later(Fd mailbox, News news);

  const Directory& directory_;
  std::set<Token> woken_;
  std::vector<std::pair<Fd, News>> open_;
  std::size_t delivered_ = 0;  ///< so many of them have been written to
};

/// One key under its lock, its table brought up to date with the processes. Whoever changes the
/// table calls save(); without it nothing is written.
class OpenKey {
 public:
  /// Nothing if the key has no file and `use` makes none. `self`: who asks.
  static std::optional<OpenKey> open(const Directory& directory, const LockKey& key,
                                     KeyFile::Use use, const Token& self,
                                     const CallOptions& call_options);

  LockTable table;
  Now now;
  FifoNotifier knocks;

  /// Ends the work for the queue that `more` says is left, tells every waiter that now stands
  /// behind another to look, and writes. `self` is told nothing.
  void save(const Token& self, bool more);

  void touch() const { file_.touch(); }
  bool created() const { return file_.created(); }
  /// Why nobody can say whether a holder still runs; empty if all can be judged.
  const std::string& undecided() const { return undecided_; }
  /// When the first of the leases ends; holds of living processes have none.
  std::optional<milliseconds> until_next_end() const;

 private:
  OpenKey(const Directory& directory, LockKey key, KeyFile file)
      : knocks(directory), directory_(directory), key_(std::move(key)), file_(std::move(file)) {}
  /// What the rules may have changed of a table, without its texts: an entry that asks again is
  /// seen anew.
  struct Standing {
    struct Place {
      std::uint64_t token;  ///< its hash
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

/// The two clocks of the rules, now.
Now now_here();

}  // namespace dlock
