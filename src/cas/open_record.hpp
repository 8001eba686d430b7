#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cas/cas_backend.hpp"
#include "rule/admission.hpp"

namespace dlock {

/// The table of a key, from the read of its record to the write that replaces the record. The
/// constructor removes dead waiters. wake() collects the messages that the write will send.
class OpenRecord final : public WaiterNotifier {
 public:
  /// `self` is the token that asks. Throws Error{wrong_data} if the record holds anything but the
  /// table of this key; `where` names the engine.
  OpenRecord(const LockKey& key, const Token& self, const Snapshot& seen, const std::string& where);

  LockTable table;
  const Now now;

  bool wake(const WaiterEntry& waiter, const Message& message) override;
  /// Unlimited if entries have lives, because no hold ends before its life.
  milliseconds provisional_lease() const override;
  milliseconds clock_unsure() const { return seen_.clock_unsure; }

  /// Whether there are messages to send, or the table differs from the record in more than the last
  /// requests of waiters that others see alive anyway.
  bool changed() const;
  Update update() const;
  /// Whether the token had a confirmed hold in the record that was read.
  bool held_before(const Token& token) const;
  /// Whether the end of the token's life is enough to release its hold: nobody waits for the slot,
  /// and no min-hold follows. This saves a write of a record that many clients write.
  bool ends_by_life(const Token& token);
  /// Throws Error{unavailable} if the record, of `bytes` now, has no room for this request.
  void check_room(std::size_t bytes, const CasBackend& backend) const;
  /// The lease of the token's life in the record that was read; 0: the token has no life.
  std::int64_t lease_of(const Token& token) const;
  /// Whether an entry names the client whose life is `id`.
  bool names(const std::string& id) const;
  /// The life or the address by which a waiter watches a live entry; empty: there is none.
  std::string to_watch(const WaiterEntry& waiter) const;
  std::string to_watch(const HoldEntry& hold) const;

 private:
  bool has_lives_of(Lives::Of kind) const { return seen_.lives && seen_.lives->of == kind; }
  bool entries_live() const { return has_lives_of(Lives::Of::entries); }
  bool lives(const std::string& id) const { return seen_.lives && seen_.lives->contains(id); }
  std::string life_of(const Token& token, const HolderIdentity& backing) const;
  std::string life_of(const HoldEntry& hold) const;
  bool lives_unseen(const WaiterEntry& waiter) const;
  void drop_dead_waiters();
  void end_by_life(HoldEntry& hold) const;
  std::vector<std::string> lives_without_entry() const;

  const LockKey& key_;
  const Token self_;
  const Snapshot& seen_;
  LockTable before_;
  std::vector<Wakeup> wakeups_;
};

/// The channel and the id of the life in an address. An address without an id has neither.
std::string channel_in(const std::string& address);
std::string life_in(const std::string& address);

/// A hash of a text, as a short name: a message names its waiter without revealing the token.
std::string short_name(std::string_view text);

/// The names of an entry's lives, if entries have some: one for waiting and holding, one for its
/// min-hold.
std::string life_name(const Token& token);
std::string min_hold_life_name(const Token& token);

/// The clients of a record.
struct Crowd {
  int holders = 0;
  int unconfirmed = 0;  ///< of the holders: each is about to write the record
  int waiters = 0;
  int sharers = 0;  ///< of the waiters: those for a lock that several can hold
};

/// The clients that the text of a record names, whether or not they are alive.
Crowd crowd_in(std::string_view text);

/// A latch as its record stores it. Each arrival is a record of its own, so that simultaneous
/// arrivals do not wait for each other.
struct LatchRecord {
  std::int64_t count = 0;
  microseconds ends{0};    ///< by the engine's clock
  std::string generation;  ///< random: tells latches of the same name apart
  bool open = false;       ///< all have arrived, and the waiters were notified
};

std::string latch_text(const LatchRecord& latch);

/// Returns the latch in a record; nothing if there is none, or it has expired. Throws
/// Error{wrong_data} if the record holds anything else; `where` names the engine.
std::optional<LatchRecord> latch_in(const Snapshot& seen, const std::string& where);

// An engine that stores only bytes puts the expiry of a record (Update::ends) before its text.

constexpr std::string_view first_word_of_value = "ends ";
std::string value_of(const Update& update);
/// Removes the expiry from the front of a value; returns nothing if the value is not dlock's.
std::optional<microseconds> take_end(std::string& value);

/// A record as the value of a store that has neither names of any characters nor versions.
struct StoredRecord {
  Version version = 0;
  std::string name;
  std::string text;
};
/// `dlock-record 1 VERSION NAME`, a line end, and the text.
std::string stored(const StoredRecord& record);
/// The record in a value; nothing if the value is not dlock's.
std::optional<StoredRecord> stored_in(std::string_view value);

/// Throws Error{wrong_data} for data that is not dlock's; `where` names the engine and the place.
[[noreturn]] void throw_no_record(const std::string& where);

/// A version for the next state of a record. It is random, so that none repeats, even after a
/// record was removed or a failover lost some writes.
Version random_version();

/// A name for the record `name` where an engine permits only lower-case letters, digits and dashes:
/// it begins with at most 40 such characters of `shown`, and ends with a hash of the whole name.
std::string plain_name(std::string_view name, std::string_view shown);

}  // namespace dlock
