#pragma once

#include <cstddef>
#include <optional>

#include "rule/lock_table.hpp"

namespace dlock {

/// Notifies the waiters of an engine.
class WaiterNotifier {
 public:
  virtual ~WaiterNotifier() = default;
  /// Sends a message to one waiter; false if its process no longer listens: the waiter then leaves
  /// the queue.
  virtual bool wake(const WaiterEntry& waiter, const Message& message) = 0;
  /// How many of the first waiters must know when the obstacle ends, and how many get a message if
  /// one of them does not know.
  struct WakeWindow {
    std::size_t know = 3;  ///< a single one might die unnoticed
    std::size_t told = 8;  ///< enough that most hand-overs wake only the waiter that gets the lock
  };
  virtual WakeWindow first_few() const { return {}; }
  /// The lease of a grant by message, until its waiter confirms it. If the waiter's command may run
  /// before the confirmation, the lease must outlast a hiccup of some seconds.
  virtual milliseconds provisional_lease() const { return milliseconds(6000); }
};

/// One request on a table, with the steps that every kind of request does before and after its own.
class TableTransaction {
 public:
  /// `self`: the token of the asking client, which gets an answer instead of a wake-up.
  TableTransaction(LockTable& table, Now now, WaiterNotifier& wakes, Token self);

  struct Verdict {
    enum class Kind { enters, fits, upgrade, full } kind;
    const HoldEntry* inside = nullptr;  ///< with `enters`: the hold that is re-entered
    bool lets_in() const { return kind == Kind::enters || kind == Kind::fits; }
  };
  Verdict rule(const Owner& owner, Limit limit) const;

  /// The fence of a hold by this verdict: the fence of the hold it re-enters, or the next one.
  Fence fence_for(const Verdict& verdict) const;
  /// The lease of a grant that its waiter has not confirmed yet.
  milliseconds provisional_lease() const;
  /// Records a hold for `asker` and removes it from the queue.
  void admit(const WaiterEntry& asker, const Verdict& verdict, Flag flag, milliseconds lease,
             Fence fence);
  /// Renews and confirms a hold.
  void confirm(HoldEntry& own, milliseconds lease) const;
  void join(WaiterEntry asker, std::optional<Ticket> ticket);
  void unqueue(const Token& token);
  /// Whether the asking claim, which has this owner, is older than the newest known claim with
  /// `latest`.
  bool is_superseded(std::optional<Ticket> ticket, const Owner& owner) const;
  /// The ticket of a new claim with `latest`: the one that it brings, or one after the newest.
  Ticket newest_ticket(std::optional<Ticket> ticket) const;
  /// Records `newer` as the newest claim. The previous one leaves the queue and gets a message.
  void supersede(const WaiterEntry& newer, Ticket ticket);
  void grant_waiters();
  void notify_next();
  void admit_waiters() {
    grant_waiters();
    notify_next();
  }
  Refused refused(Refusal::Reason why) const;
  microseconds now() const { return now_.lease_clock; }

 private:
  Ticket last_ticket_plus_one() const;
  std::optional<microseconds> earliest_end() const;

  LockTable& table_;
  Now now_;
  WaiterNotifier& wakes_;
  Token self_;
  std::optional<microseconds> earliest_before_;
  bool handed_over_ = false;
  bool has_lapsed_ = false;  ///< a waiter has let its grant expire unconfirmed
};

}  // namespace dlock
