#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cas/cas_backend.hpp"
#include "rule/lock_table.hpp"

namespace dlock {

/// The table of a key between the read of its record and the write over it: brought up to date with
/// the waiters that live, and with a notifier that collects messages for the write to send.
class OpenRecord final : public WaiterNotifier {
 public:
  /// `self`: the token that asks. Throws Error{wrong_data} if the record holds anything but the
  /// table of this key; `where` names the place.
  OpenRecord(const LockKey& key, const Token& self, const Snapshot& seen, const std::string& where);

  LockTable table;
  const Now now;

  bool wake(const WaiterEntry& waiter, const Message& message) override;
  /// Where lives decide, no hold ends before its life.
  milliseconds provisional_lease() const override;

  /// Ends the work for the queue that `more` says is left.
  void finish(bool more);
  /// Whether the table differs from the record by more than signs of life that others can see.
  bool changed() const;
  Update update() const;
  /// Whether the token held already in the record that was read, and had confirmed that.
  bool held_before(const Token& token) const;
  /// Whether the end of its life is enough to release a hold, without a write of the record that
  /// many others write, too: nobody waits for the slot, and no min-hold follows.
  bool ends_by_life(const Token& token);
  /// The request adds this entry for its token to the record that was read.
  enum class Added { nothing, hold, waiter };
  Added added() const;
  /// Of the life of a token in the record that was read; 0: it has none.
  std::int64_t lease_of(const Token& token) const;

 private:
  bool lives_unseen(const WaiterEntry& waiter) const;
  bool has_life(const std::string& name) const { return seen_.lives->contains(name); }
  void take_lives();
  void end_by_life(HoldEntry& hold) const;
  void drop_dead_waiters();
  void extend_by_connections();
  std::vector<std::string> lives_without_entry() const;
  void keep_lives_of_holds(std::vector<std::string>& ended) const;

  const LockKey& key_;
  const Token self_;
  const Snapshot& seen_;
  LockTable before_;
  std::vector<Wakeup> wakeups_;
};

/// Where a waiter on connection `id` listens, as its entry names it; empty if it hears nothing.
std::string wake_address(const std::string& channel, const std::string& id);

/// The channel and the connection in such an address.
std::string channel_in(const std::string& address);
std::string connection_in(const std::string& address);

/// How a message names the waiter it is for: a token itself must not show.
std::string message_tag(const Token& token);

/// The lives of an entry: for its waiting and holding, and for its min-hold.
std::string life_name(const Token& token);
std::string min_hold_life_name(const Token& token);

/// The clients of a record.
struct Crowd {
  int holders = 0;
  int unconfirmed = 0;  ///< of the holders: each is about to write the record
  int waiters = 0;
  int sharers = 0;  ///< of the waiters: those for a lock that several can hold
};

/// The clients that the text of a record names, without a look at whether they live.
Crowd crowd_in(std::string_view text);

}  // namespace dlock
