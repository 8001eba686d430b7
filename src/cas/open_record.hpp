#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cas/cas_backend.hpp"
#include "rule/lock_table.hpp"

namespace dlock {

/// The table of a key between the read of its record and the write over it. It is updated with the
/// state of its waiters, and its notifier collects the messages for the write to send.
class OpenRecord final : public WaiterNotifier {
 public:
  /// `self` is the token that asks. Throws Error{wrong_data} if the record holds anything but the
  /// table of this key; `where` names the engine.
  OpenRecord(const LockKey& key, const Token& self, const Snapshot& seen, const std::string& where);

  LockTable table;
  const Now now;

  bool wake(const WaiterEntry& waiter, const Message& message) override;
  /// Unlimited with lives, because no hold ends before its life.
  milliseconds provisional_lease() const override;

  /// Finishes the queue's work; `more` says whether some is left.
  void finish(bool more);
  /// Whether the table differs from the record by more than signs of life that others can see
  /// anyway.
  bool changed() const;
  Update update() const;
  /// Whether the token had a confirmed hold in the record that was read.
  bool held_before(const Token& token) const;
  /// Whether the end of its life is enough to release a hold, without a write of the record that
  /// many others write, too: nobody waits for the slot, and no min-hold follows.
  bool ends_by_life(const Token& token);
  /// The request adds this entry for its token to the record that was read.
  enum class Added { nothing, hold, waiter };
  Added added() const;
  /// The lease of the token's life in the record that was read; 0: it has no life.
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

/// The address in a waiter's entry: its channel and its connection `id`; empty if it receives no
/// messages.
std::string wake_address(const std::string& channel, const std::string& id);

/// The channel and the connection in such an address.
std::string channel_in(const std::string& address);
std::string connection_in(const std::string& address);

/// Identifies the waiter in a message without revealing its token.
std::string message_tag(const Token& token);

/// The names of an entry's lives: one for waiting and holding, one for its min-hold.
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
