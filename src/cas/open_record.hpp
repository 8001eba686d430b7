#pragma once

#include <string>
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

  /// Ends the work for the queue that `more` says is left.
  void finish(bool more);
  /// Whether the table differs from the record by more than signs of life that others can see.
  bool changed() const;
  Update update() const;

 private:
  bool lives_unseen(const WaiterEntry& waiter) const;

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

}  // namespace dlock
