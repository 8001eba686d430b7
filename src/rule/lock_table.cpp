#include "rule/lock_table.hpp"

#include <algorithm>

#include "rule/table_transaction.hpp"

namespace dlock {
namespace {

const Owner nobody{"-"};

milliseconds floor_left(const HoldEntry& hold, microseconds now) {
  return std::chrono::ceil<milliseconds>(std::min(hold.since, now) + hold.floor - now);
}

WaiterEntry asking(const Claim& claim, const HolderIdentity& backing, microseconds now,
                   std::optional<Fence> proposal) {
  return {claim.token, claim.owner, {},        now,     {},       claim.ttl,
          claim.floor, claim.limit, claim.who, backing, proposal, {}};
}

HoldEntry tombstone(const Token& token, milliseconds lease, microseconds now) {
  HoldEntry entry;
  entry.token = token;
  entry.owner = nobody;
  entry.flag = Flag::tombstone;
  entry.at = entry.since = now;
  entry.lease = entry.ttl = lease;
  entry.limit = no_limit;
  return entry;
}

}  // namespace

microseconds left_of(const HoldEntry& hold, microseconds now) {
  return hold.lease - (now - std::min(hold.at, now));
}

bool end_hold(LockTable& table, HoldEntry& hold, microseconds now) {
  const milliseconds left = floor_left(hold, now);
  if (!hold.inside() || left <= milliseconds(0)) {
    table.holds.erase(table.holds.begin() + (&hold - table.holds.data()));
    return true;
  }
  hold.lease = hold.floor;
  hold.at = std::min(hold.since, now);
  hold.flag = Flag::kept;
  hold.owner = nobody;
  return false;
}

bool expire_hold(LockTable& table, HoldEntry& hold, microseconds now) {
  if (hold.flag == Flag::provisional) hold.floor = milliseconds(0);
  return end_hold(table, hold, now);
}

HoldEntry* LockTable::find_hold(const Token& token) {
  const auto found = std::find_if(holds.begin(), holds.end(),
                                  [&](const HoldEntry& hold) { return hold.token == token; });
  return found == holds.end() ? nullptr : &*found;
}

std::deque<WaiterEntry>::iterator LockTable::find_waiter(const Token& token) {
  return std::find_if(queue.begin(), queue.end(),
                      [&](const WaiterEntry& waiter) { return waiter.token == token; });
}

std::vector<HoldEntry> LockTable::live_holds(Now now) const {
  std::vector<HoldEntry> live;
  // A copy is expired as a request would do it, so that a floor outlives its lease here too.
  LockTable copy{holds, {}, last_fence, {}, last_ask};
  for (std::size_t i = 0; i < copy.holds.size();) {
    HoldEntry& hold = copy.holds[i];
    const bool expired = left_of(hold, now.lease_clock) <= microseconds(0);
    if (expired && expire_hold(copy, hold, now.lease_clock)) continue;
    if (hold.counts()) live.push_back(hold);
    ++i;
  }
  return live;
}

Outcome<std::variant<Granted, Refused>> LockTable::acquire(const Claim& claim, const Ask& ask,
                                                           const HolderIdentity& backing, Now now,
                                                           WaiterNotifier& wakes,
                                                           std::optional<Fence> proposal) {
  TableTransaction op(*this, now, wakes, claim.token);
  using Kind = TableTransaction::Verdict::Kind;
  const auto finish = [&](std::variant<Granted, Refused> answer) {
    return Outcome<std::variant<Granted, Refused>>{std::move(answer), op.more()};
  };
  const auto refuse = [&](Refusal::Reason why) {
    op.unqueue(claim.token);
    op.admit_waiters();
    return finish(op.refused(why));
  };
  if (HoldEntry* own = find_hold(claim.token)) {
    if (!own->inside()) return refuse(Refusal::Reason::gone);
    own->at = op.now();
    own->ttl = own->lease = claim.ttl;
    own->flag = Flag::held;
    op.unqueue(claim.token);
    op.admit_waiters();
    own = find_hold(claim.token);
    return finish(Granted{own->fence, own->lease});
  }
  if (claim.latest && op.is_superseded(ask.ticket)) return refuse(Refusal::Reason::superseded);
  const WaiterEntry asker = asking(claim, backing, op.now(), proposal);
  const auto verdict = op.guarded_rule(claim.owner, claim.limit);
  if (verdict.kind == Kind::enters) {
    op.admit(asker, verdict, Flag::held, claim.ttl);
    op.admit_waiters();
    const HoldEntry* own = find_hold(claim.token);
    return finish(Granted{own->fence, own->lease});
  }
  if (verdict.kind == Kind::upgrade) return refuse(Refusal::Reason::upgrade);
  const auto ticket = claim.latest ? op.newest_ticket(ask.ticket) : ask.ticket;
  if (ask.wait && (!queue.empty() || verdict.kind == Kind::full)) {
    op.join(asker, ticket);
    if (claim.latest) op.supersede(asker, find_waiter(claim.token)->ticket);
  }
  op.let_in();
  if (find_hold(claim.token) == nullptr && queue.empty()) {
    const auto now_free = op.guarded_rule(claim.owner, claim.limit);
    if (now_free.kind == Kind::fits) {
      op.admit(asker, now_free, Flag::held, claim.ttl);
      if (claim.latest && (!now.one_of_several || ask.ticket)) op.supersede(asker, *ticket);
    }
  }
  op.tell_next();
  if (const HoldEntry* own = find_hold(claim.token)) return finish(Granted{own->fence, own->lease});
  return finish(op.refused(Refusal::Reason::held));
}

Outcome<std::optional<milliseconds>> LockTable::renew(const Token& token,
                                                      std::optional<milliseconds> ttl, Now now,
                                                      WaiterNotifier& wakes,
                                                      std::optional<Fence> raise_to) {
  TableTransaction op(*this, now, wakes, Token{});
  std::optional<milliseconds> lease;
  HoldEntry* own = find_hold(token);
  if (own != nullptr && own->inside()) {
    lease = ttl.value_or(own->ttl);
    op.renew(*own, *lease, raise_to);
  }
  op.admit_waiters();
  return {lease, op.more()};
}

Outcome<std::optional<Granted>> LockTable::rejoin(const Claim& claim, Fence fence,
                                                  const HolderIdentity& backing, Now now,
                                                  WaiterNotifier& wakes) {
  TableTransaction op(*this, now, wakes, Token{});
  HoldEntry* own = find_hold(claim.token);
  const auto verdict = op.rule(claim.owner, claim.limit);
  if (own != nullptr && own->inside()) {
    op.renew(*own, own->ttl, {});
    op.agree(own->owner, fence);
  } else if (own == nullptr && verdict.lets_in()) {
    op.admit(asking(claim, backing, op.now(), {}), verdict, Flag::held, claim.ttl, fence);
    op.agree(find_hold(claim.token)->owner, fence);
  } else if (own == nullptr && verdict.kind == TableTransaction::Verdict::Kind::full) {
    WaiterEntry asker = asking(claim, backing, op.now(), {});
    asker.reserved = fence;
    op.join(asker, Ticket{0});
  }
  // One that is let in only now, behind another with a reservation, hears so when it next asks.
  own = find_hold(claim.token);
  const bool inside = own != nullptr && own->inside();
  op.admit_waiters();
  if (!inside) return {{}, op.more()};
  own = find_hold(claim.token);
  return {Granted{own->fence, own->lease}, op.more()};
}

Outcome<Released> LockTable::release(const Token& token, const ReleaseTerms& terms, Now now,
                                     WaiterNotifier& wakes) {
  TableTransaction op(*this, now, wakes, Token{});
  Released answer = Released::not_held;
  HoldEntry* own = find_hold(token);
  if (own != nullptr && own->inside()) {
    answer = Released::yes;
    if (terms.ignore_floor) own->floor = milliseconds(0);
    end_hold(*this, *own, op.now());
  } else if (find_waiter(token) != queue.end()) {
    answer = Released::left_queue;
  }
  op.unqueue(token);
  if (terms.unsure && find_hold(token) == nullptr) {
    holds.push_back(tombstone(token, terms.tombstone, op.now()));
  }
  op.admit_waiters();
  return {answer, op.more()};
}

Outcome<std::vector<HoldEntry>> LockTable::force(std::optional<Fence> fence,
                                                 const std::optional<Who>& by, Now now,
                                                 WaiterNotifier& wakes) {
  TableTransaction op(*this, now, wakes, Token{});
  std::vector<HoldEntry> out;
  std::erase_if(holds, [&](HoldEntry& hold) {
    if (!hold.counts() || (fence && hold.fence != *fence)) return false;
    out.push_back(hold);
    if (!by || hold.flag != Flag::held) return true;
    hold = tombstone(hold.token, hold.lease, op.now());
    hold.who = *by;
    return false;
  });
  op.admit_waiters();
  return {std::move(out), op.more()};
}

std::optional<Who> LockTable::evicted_by(const Token& token) const {
  for (const HoldEntry& hold : holds) {
    const bool evicted = hold.flag == Flag::tombstone && !hold.who.host.empty();
    if (evicted && hold.token == token) return hold.who;
  }
  return std::nullopt;
}

Outcome<std::optional<milliseconds>> LockTable::admit_waiters(Now now, WaiterNotifier& wakes) {
  TableTransaction op(*this, now, wakes, Token{});
  op.admit_waiters();
  return {op.until_earliest_end(), op.more()};
}

}  // namespace dlock
