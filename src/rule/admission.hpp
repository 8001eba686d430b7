#pragma once

#include <optional>

#include "rule/lock_table.hpp"

namespace dlock {

/// One request at work on a table: what every kind of request does before and after its own step.
class TableTransaction {
 public:
  /// `self`: who asks, and is answered instead of woken.
  TableTransaction(LockTable& table, Now now, WaiterNotifier& wakes, Token self);

  struct Verdict {
    enum class Kind { enters, fits, upgrade, full } kind;
    const HoldEntry* inside = nullptr;  ///< with `enters`: a hold of the owner re-entered
    bool lets_in() const { return kind == Kind::enters || kind == Kind::fits; }
  };
  Verdict rule(const Owner& owner, Limit limit) const;

  /// The fence of a hold by this verdict: that of the hold it re-enters, or the next one.
  Fence fence_for(const Verdict& verdict) const;
  /// The lease of a grant that its waiter has not confirmed.
  milliseconds provisional_lease() const;
  /// Records a hold for `asker`, who leaves the queue.
  void admit(const WaiterEntry& asker, const Verdict& verdict, Flag flag, milliseconds lease,
             Fence fence);
  /// Renews and confirms a hold.
  void confirm(HoldEntry& own, milliseconds lease) const;
  void join(WaiterEntry asker, std::optional<Ticket> ticket);
  void unqueue(const Token& token);
  /// Whether a newer claim with `latest` than the one that asks, of this owner, is known.
  bool is_superseded(std::optional<Ticket> ticket, const Owner& owner) const;
  /// Where a claim with `latest` stands that brings this ticket, or none.
  Ticket newest_ticket(std::optional<Ticket> ticket) const;
  /// `newer` is the newest. The one before it leaves the queue, and asks why.
  void supersede(const WaiterEntry& newer, Ticket ticket);
  void let_in();
  void tell_next();
  void admit_waiters() {
    let_in();
    tell_next();
  }
  Refused refused(Refusal::Reason why) const;
  microseconds now() const { return now_.lease_clock; }
  bool more() const { return more_; }

 private:
  void purge();
  bool queue_is_gone() const;
  Ticket last_ticket_plus_one() const;
  std::optional<microseconds> earliest_end() const;

  LockTable& table_;
  Now now_;
  WaiterNotifier& wakes_;
  Token self_;
  std::optional<microseconds> earliest_before_;
  int budget_;
  bool more_ = false;
  bool handed_over_ = false;
  bool has_lapsed_ = false;  ///< a grant that its waiter did not confirm
};

}  // namespace dlock
