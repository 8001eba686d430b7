#include "reference/redis_table.hpp"

#include "reference/redis_transaction.hpp"

namespace dlock::reference {
std::variant<Granted, Refused> RedisTable::acquire(const Claim& claim, const Ask& ask,
                                                   ServerNow now, WaiterNotifier& wakes,
                                                   std::optional<Fence> proposal) {
  RedisTransaction op(*this, now, wakes, claim.token);
  using Kind = RedisTransaction::Verdict::Kind;
  const auto granted = [&] {
    const HoldEntry* own = stored.find_hold(claim.token);
    return Granted{own->fence, own->lease};
  };
  const auto refuse = [&](Refusal::Reason why) {
    op.unqueue(claim.token);
    op.admit_waiters();
    return op.refused(why);
  };
  if (HoldEntry* own = stored.find_hold(claim.token)) {
    if (!own->inside()) return refuse(Refusal::Reason::gone);
    own->ttl = claim.ttl;
    op.confirm(*own, claim.ttl);
    op.unqueue(claim.token);
    op.admit_waiters();
    return granted();
  }
  if (claim.latest && op.is_superseded(ask.ticket, claim.owner))
    return refuse(Refusal::Reason::superseded);
  const WaiterEntry asker = waiter_of(claim, {}, now.clock);
  const auto verdict = op.quarantined_rule(claim.owner, claim.limit);
  if (verdict.kind == Kind::enters) {
    op.admit(asker, verdict, Flag::held, claim.ttl, op.fence_for(verdict, proposal));
    op.admit_waiters();
    return granted();
  }
  if (verdict.kind == Kind::upgrade) return refuse(Refusal::Reason::upgrade);
  const auto ticket = claim.latest ? op.newest_ticket(ask.ticket) : ask.ticket;
  if (ask.wait && (!stored.queue.empty() || verdict.kind == Kind::full)) {
    op.join(asker, ticket, {proposal, {}, {}});
    if (claim.latest) op.supersede(asker, stored.find_waiter(claim.token)->ticket);
  }
  op.let_in(verdict.kind == Kind::fits);
  if (stored.find_hold(claim.token) == nullptr && stored.queue.empty()) {
    const auto now_free = op.quarantined_rule(claim.owner, claim.limit);
    if (now_free.kind == Kind::fits) {
      op.admit(asker, now_free, Flag::held, claim.ttl, op.fence_for(now_free, proposal));
      if (claim.latest && (!now.is_node || ask.ticket)) op.supersede(asker, *ticket);
    }
  }
  op.tell_next();
  if (stored.find_hold(claim.token) != nullptr) return granted();
  const bool waits = stored.find_waiter(claim.token) != stored.queue.end();
  const bool is_upgrade =
      !waits && op.quarantined_rule(claim.owner, claim.limit).kind == Kind::upgrade;
  return op.refused(is_upgrade ? Refusal::Reason::upgrade : Refusal::Reason::held);
}

std::optional<milliseconds> RedisTable::renew(const Token& token, std::optional<milliseconds> ttl,
                                              ServerNow now, WaiterNotifier& wakes,
                                              std::optional<Fence> raise_to) {
  RedisTransaction op(*this, now, wakes, Token{});
  std::optional<milliseconds> lease;
  HoldEntry* own = stored.find_hold(token);
  if (own != nullptr && own->inside()) {
    lease = ttl.value_or(own->ttl);
    op.confirm(*own, *lease);
    const bool raises = raise_to && own->fence < *raise_to && stored.last_fence <= *raise_to;
    if (raises) op.agree(own->owner, *raise_to);
  }
  op.admit_waiters();
  return lease;
}

std::optional<Granted> RedisTable::rejoin(const Claim& claim, Fence fence, ServerNow now,
                                          WaiterNotifier& wakes) {
  RedisTransaction op(*this, now, wakes, Token{});
  op.adopt_inner(claim.owner, fence);
  HoldEntry* own = stored.find_hold(claim.token);
  const auto verdict = op.rule(claim.owner, claim.limit);
  if (own != nullptr && own->inside()) {
    op.confirm(*own, own->ttl);
    op.agree(own->owner, fence);
  } else if (own == nullptr && verdict.lets_in()) {
    op.admit(waiter_of(claim, {}, now.clock), verdict, Flag::held, claim.ttl, fence);
    op.agree(stored.find_hold(claim.token)->owner, fence);
  } else if (own == nullptr && verdict.kind == RedisTransaction::Verdict::Kind::full) {
    op.join(waiter_of(claim, {}, now.clock), Ticket{0}, {{}, fence, {}});
  }
  // A hold that this call admits only now, after another reservation, is reported by the next
  // request.
  own = stored.find_hold(claim.token);
  const bool inside = own != nullptr && own->inside();
  op.admit_waiters();
  if (!inside) return std::nullopt;
  own = stored.find_hold(claim.token);
  return Granted{own->fence, own->lease};
}

Released RedisTable::release(const Token& token, const ReleaseTerms& terms, ServerNow now,
                             WaiterNotifier& wakes) {
  RedisTransaction op(*this, now, wakes, Token{});
  Released answer = Released::not_held;
  HoldEntry* own = stored.find_hold(token);
  if (own != nullptr && own->inside()) {
    answer = Released::yes;
    if (terms.ignore_floor) own->min_hold = milliseconds(0);
    end_hold(stored, *own, now.clock);
  } else if (stored.find_waiter(token) != stored.queue.end()) {
    answer = Released::left_queue;
  }
  op.unqueue(token);
  if (terms.unsure && stored.find_hold(token) == nullptr) {
    stored.holds.push_back(tombstone(token, terms.tombstone, now.clock));
  }
  op.admit_waiters();
  return answer;
}

std::vector<HoldEntry> RedisTable::force(std::optional<Fence> fence, const std::optional<Who>& by,
                                         ServerNow now, WaiterNotifier& wakes) {
  RedisTransaction op(*this, now, wakes, Token{});
  std::vector<HoldEntry> out;
  std::erase_if(stored.holds, [&](HoldEntry& hold) {
    if (!hold.counts() || (fence && hold.fence != *fence)) return false;
    out.push_back(hold);
    if (!by || !hold.inside()) return true;
    hold = tombstone(hold.token, hold.lease, now.clock);
    hold.who = *by;
    return false;
  });
  op.admit_waiters();
  return out;
}

void RedisTable::admit_waiters(ServerNow now, WaiterNotifier& wakes) {
  RedisTransaction(*this, now, wakes, Token{}).admit_waiters();
}

}  // namespace dlock::reference
