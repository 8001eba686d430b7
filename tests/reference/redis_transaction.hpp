#pragma once

#include <optional>

#include "reference/redis_table.hpp"
#include "rule/admission.hpp"

namespace dlock::reference {

/// One request that works on a server's table. It uses the steps of the rule unless a server adds
/// to them.
class RedisTransaction {
 public:
  using Verdict = TableTransaction::Verdict;

  /// `self`: the token that asks; it gets a reply instead of a message.
  RedisTransaction(RedisTable& table, ServerNow now, WaiterNotifier& wakes, const Token& self);

  Verdict rule(const Owner& owner, Limit limit) const;
  /// The same, but no new owner is admitted while the server is in quarantine.
  Verdict quarantined_rule(const Owner& owner, Limit limit) const;
  Fence fence_for(const Verdict& verdict, std::optional<Fence> proposal) const;
  void admit(const WaiterEntry& asker, const Verdict& verdict, Flag flag, milliseconds lease,
             Fence fence) {
    rule_.admit(asker, verdict, flag, lease, fence);
  }
  /// Renews and confirms a hold.
  void confirm(HoldEntry& own, milliseconds lease) const { rule_.confirm(own, lease); }
  /// Gives this fence to all holds of an owner, which share one; the last fence is at least that.
  void agree(const Owner& owner, Fence fence);
  /// Moves holds with this fence from inner owners to this owner: they came back before the outer
  /// hold.
  void adopt_inner(const Owner& owner, Fence fence);
  void join(const WaiterEntry& asker, std::optional<Ticket> ticket, const WaiterNotes& notes);
  void unqueue(const Token& token) { rule_.unqueue(token); }
  bool is_superseded(std::optional<Ticket> ticket, const Owner& owner) const {
    return rule_.is_superseded(ticket, owner);
  }
  Ticket newest_ticket(std::optional<Ticket> ticket) const { return rule_.newest_ticket(ticket); }
  /// Supersedes as the rule does, but keeps a waiter with a reservation, since the other nodes hold
  /// it.
  void supersede(const WaiterEntry& newer, Ticket ticket);
  /// `asker_fits`: only the queue keeps out the claim that asks.
  void let_in(bool asker_fits = false);
  void tell_next();
  void admit_waiters() {
    let_in();
    tell_next();
  }
  Refused refused(Refusal::Reason why) const;

 private:
  milliseconds provisional_lease() const;
  bool stays_away(const WaiterNotes& waiter) const;
  bool keeps_place(WaiterNotes& waiter, std::size_t absent_before) const;
  bool reaches_head(const Message& message);
  void ask_for_life_of_head();
  std::optional<microseconds> earliest_end() const;

  RedisTable& table_;
  LockTable& stored_;
  const ServerNow now_;
  WaiterNotifier& wakes_;
  const Token self_;
  /// The key is free until then for a waiter that may be on its way here.
  std::optional<microseconds> moment_end_;
  const std::optional<microseconds> earliest_before_;  ///< before `rule_` removes expired holds
  bool handed_over_ = false;
  TableTransaction rule_;
};

}  // namespace dlock::reference
