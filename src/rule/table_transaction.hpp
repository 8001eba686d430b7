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

  /// The same, and nobody new while the place is guarded.
  Verdict guarded_rule(const Owner& owner, Limit limit) const;

  /// Records a hold for `asker`, who leaves the queue. Who is new gets `fence`, or the next one.
  Granted admit(const WaiterEntry& asker, const Verdict& verdict, Flag flag, milliseconds lease,
                std::optional<Fence> fence = {});
  /// Renews and confirms a hold; its fence is raised where none beyond `raise_to` was given out.
  void renew(HoldEntry& own, milliseconds lease, std::optional<Fence> raise_to);
  /// All holds of an owner, which share one fence, get this one; the last is at least that.
  void agree(const Owner& owner, Fence fence);
  void join(WaiterEntry asker, std::optional<Ticket> ticket);
  void unqueue(const Token& token);
  /// Whether a newer claim with `latest` than the one that asks is known.
  bool is_superseded(std::optional<Ticket> ticket) const;
  /// Where a claim with `latest` stands that brings this ticket, or none.
  Ticket newest_ticket(std::optional<Ticket> ticket) const;
  /// `newer` is the newest. The one before it leaves the queue, and asks why; but not one that the
  /// other members of a quorum hold.
  void supersede(const WaiterEntry& newer, Ticket ticket);
  void let_in();
  void tell_next();
  void admit_waiters() {
    let_in();
    tell_next();
  }
  Refused refused(Refusal::Reason why) const;
  Ticket last_ticket_plus_one() const;
  std::optional<microseconds> earliest_end() const;
  std::optional<milliseconds> until_earliest_end() const;
  microseconds now() const { return now_.lease_clock; }
  bool more() const { return more_; }

 private:
  void purge();
  bool queue_is_gone() const;
  milliseconds provisional_lease() const;
  bool stays_away(const WaiterEntry& waiter) const;
  bool keeps_place(WaiterEntry& waiter, std::size_t absent_before) const;
  Fence next_fence(std::optional<Fence> proposal) const;

  LockTable& table_;
  Now now_;
  WaiterNotifier& wakes_;
  Token self_;
  std::optional<microseconds> earliest_before_;
  /// Until then the key is free for a waiter that may be on its way here.
  std::optional<microseconds> moment_end_;
  int budget_;
  bool more_ = false;
  bool has_lapsed_ = false;  ///< a grant that its waiter did not confirm
};

}  // namespace dlock
