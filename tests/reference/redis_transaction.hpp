#pragma once

#include <optional>

#include "reference/redis_table.hpp"
#include "rule/admission.hpp"

namespace dlock::reference {

/// One request at work on a server's table. Its steps are those of the rule where a server adds
/// nothing to them.
class RedisTransaction {
 public:
  using Verdict = TableTransaction::Verdict;

  /// `self`: who asks, and is answered instead of woken.
  RedisTransaction(RedisTable& table, ServerNow now, WaiterNotifier& wakes, const Token& self);

  Verdict rule(const Owner& owner, Limit limit) const;
  /// The same, and nobody new while the server is in quarantine.
  Verdict quarantined_rule(const Owner& owner, Limit limit) const;
  Fence fence_for(const Verdict& verdict, std::optional<Fence> proposal) const;
  void admit(const WaiterEntry& asker, const Verdict& verdict, Flag flag, milliseconds lease,
             Fence fence) {
    rule_.admit(asker, verdict, flag, lease, fence);
  }
  /// Renews and confirms a hold.
  void confirm(HoldEntry& own, milliseconds lease) const { rule_.confirm(own, lease); }
  /// All holds of an owner, which share one fence, get this one; the last is at least that.
  void agree(const Owner& owner, Fence fence);
  /// Holds with this fence that go by an owner below this one came back before its own: they are
  /// its from now on.
  void adopt_inner(const Owner& owner, Fence fence);
  void join(const WaiterEntry& asker, std::optional<Ticket> ticket, const WaiterNotes& notes);
  void unqueue(const Token& token) { rule_.unqueue(token); }
  bool is_superseded(std::optional<Ticket> ticket, const Owner& owner) const {
    return rule_.is_superseded(ticket, owner);
  }
  Ticket newest_ticket(std::optional<Ticket> ticket) const { return rule_.newest_ticket(ticket); }
  /// As the rule does it; but a waiter with a reservation stays, as the other nodes hold it.
  void supersede(const WaiterEntry& newer, Ticket ticket);
  /// `asker_fits`: the queue alone keeps out the claim that asks.
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
  /// Until then the key is free for a waiter that may be on its way here.
  std::optional<microseconds> moment_end_;
  const std::optional<microseconds> earliest_before_;  ///< before `rule_` removes what has expired
  bool handed_over_ = false;
  TableTransaction rule_;
};

}  // namespace dlock::reference
