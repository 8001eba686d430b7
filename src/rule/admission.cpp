#include "rule/admission.hpp"

#include <algorithm>
#include <set>
#include <string_view>

namespace dlock {
namespace {

/// A first waiter that has not asked for this long counts as dead, whatever its FIFO says.
constexpr std::chrono::seconds longest_head_silence{75};
/// The next request drops a queue in which no waiter has asked for this long.
constexpr std::chrono::seconds queue_life{120};
/// If an unconfirmed grant expired this recently, the next waiters may be stopped, too: each of
/// them gets a shorter provisional lease.
constexpr std::chrono::seconds lapse_memory{30};
constexpr milliseconds doubted_lease{1000};
/// A waiter that asks at most this long after the obstacle has ended needs no message.
constexpr milliseconds told_slack{1000};
/// A refused client asks again after this time if no hold with an end blocks it.
constexpr milliseconds ask_again_anyway{1000};

microseconds end_of(const HoldEntry& hold) { return hold.at + hold.lease; }

bool stands_before(const WaiterEntry& a, const WaiterEntry& b) {
  return a.ticket != b.ticket ? a.ticket < b.ticket : a.token < b.token;
}

}  // namespace

TableTransaction::TableTransaction(LockTable& table, Now now, WaiterNotifier& wakes, Token self)
    : table_(table), now_(now), wakes_(wakes), self_(std::move(self)) {
  for (HoldEntry& hold : table_.holds) hold.at = std::min(hold.at, now_.lease_clock);
  earliest_before_ = earliest_end();
  expire_holds(table_, now_.lease_clock, [&](const HoldEntry& hold) {
    const bool expired = end_of(hold) <= now_.lease_clock;
    const bool unconfirmed = expired && hold.flag == Flag::provisional;
    if (unconfirmed && end_of(hold) + lapse_memory > now_.lease_clock) has_lapsed_ = true;
    return expired;
  });
  if (std::chrono::floor<milliseconds>(table_.last_ask) + queue_life <
      std::chrono::floor<milliseconds>(now_.lease_clock)) {
    table_.queue.clear();
    table_.latest.reset();
  }
}

milliseconds TableTransaction::provisional_lease() const {
  return has_lapsed_ ? doubted_lease : wakes_.provisional_lease();
}

TableTransaction::Verdict TableTransaction::rule(const Owner& owner, Limit limit) const {
  const HoldEntry* outer = nullptr;
  std::set<std::string_view> owners;
  std::int64_t cooling = 0;
  for (const HoldEntry& hold : table_.holds) {
    if (!hold.counts()) continue;
    if (!hold.inside()) {
      ++cooling;
      continue;
    }
    owners.insert(hold.owner.text);
    if (owner.is_or_below(hold.owner) &&
        (outer == nullptr || !outer->owner.is_or_below(hold.owner))) {
      outer = &hold;
    }
  }
  // No owner uses a hold in cooldown any more: it keeps out only new owners.
  const auto inside = static_cast<std::int64_t>(owners.size());
  const std::int64_t with_newcomer = inside + cooling + 1;
  using Kind = Verdict::Kind;
  if (outer != nullptr) {
    return limit.admits(inside) ? Verdict{Kind::enters, outer} : Verdict{Kind::upgrade};
  }
  const bool kept_out = std::any_of(
      table_.holds.begin(), table_.holds.end(),
      [&](const HoldEntry& hold) { return hold.counts() && !hold.limit.admits(with_newcomer); });
  return Verdict{!kept_out && limit.admits(with_newcomer) ? Kind::fits : Kind::full};
}

Fence TableTransaction::fence_for(const Verdict& verdict) const {
  if (verdict.inside != nullptr) return verdict.inside->fence;
  return std::max(Fence{table_.last_fence.value + 1},
                  now_.fence_floor.value_or(Fence{now_.wall.count()}));
}

void TableTransaction::admit(const WaiterEntry& asker, const Verdict& verdict, Flag flag,
                             milliseconds lease, Fence fence) {
  HoldEntry hold{asker.token, asker.owner,    flag,        now(), now(),     lease,
                 asker.ttl,   asker.min_hold, asker.limit, fence, asker.who, asker.backing};
  if (verdict.inside != nullptr) {
    hold.owner = verdict.inside->owner;
  } else {
    table_.last_fence = std::max(table_.last_fence, fence);
    table_.last = LastGrant{hold.who, WallTime(now_.wall), fence, {}};
  }
  unqueue(hold.token);
  table_.holds.push_back(hold);
}

void TableTransaction::confirm(HoldEntry& own, milliseconds lease) const {
  own.at = now();
  own.lease = lease;
  own.flag = Flag::held;
}

void TableTransaction::join(WaiterEntry asker, std::optional<Ticket> ticket) {
  table_.last_ask = table_.queue.empty() ? now() : std::max(table_.last_ask, now());
  const auto place = table_.find_waiter(asker.token);
  if (place == table_.queue.end()) {
    asker.ticket = ticket.value_or(last_ticket_plus_one());
  } else {
    asker.ticket = ticket ? std::min(*ticket, place->ticket) : place->ticket;
    table_.queue.erase(place);
  }
  const auto before =
      std::upper_bound(table_.queue.begin(), table_.queue.end(), asker, stands_before);
  table_.queue.insert(before, std::move(asker));
}

void TableTransaction::unqueue(const Token& token) {
  const auto place = table_.find_waiter(token);
  if (place != table_.queue.end()) table_.queue.erase(place);
}

/// A client with a ticket was queued before. If it has the ticket of the newest claim and the same
/// owner, it has come again with another token and is not superseded.
bool TableTransaction::is_superseded(std::optional<Ticket> ticket, const Owner& owner) const {
  if (!table_.latest || !ticket || table_.latest->token == self_) return false;
  if (*ticket != table_.latest->ticket) return *ticket < table_.latest->ticket;
  return owner != table_.latest->owner && self_ < table_.latest->token;
}

Ticket TableTransaction::newest_ticket(std::optional<Ticket> ticket) const {
  if (ticket) return *ticket;
  const std::int64_t newest = table_.latest ? table_.latest->ticket.value : 0;
  return std::max(last_ticket_plus_one(), Ticket{newest + 1});
}

void TableTransaction::supersede(const WaiterEntry& newer, Ticket ticket) {
  if (table_.latest && table_.latest->token != newer.token) {
    const auto older = table_.find_waiter(table_.latest->token);
    if (older != table_.queue.end()) {
      wakes_.wake(*older, NextMessage{milliseconds(0)});
      table_.queue.erase(older);
    }
  }
  table_.latest = LatestClaim{ticket, newer.token, newer.owner, newer.who};
  table_.last_ask = table_.queue.empty() ? now() : std::max(table_.last_ask, now());
}

void TableTransaction::grant_waiters() {
  while (!table_.queue.empty()) {
    const WaiterEntry head = table_.queue.front();
    const bool own = head.token == self_;
    if (!own && head.seen < now() - longest_head_silence) {
      table_.queue.pop_front();
      continue;
    }
    const Verdict verdict = rule(head.owner, head.limit);
    if (verdict.kind == Verdict::Kind::upgrade) {
      // The owner now holds the key in another mode: the waiter asks at once, and gets the refusal.
      if (!own) wakes_.wake(head, NextMessage{milliseconds(0)});
      table_.queue.pop_front();
      continue;
    }
    if (!verdict.lets_in()) return;
    const Fence fence = fence_for(verdict);
    if (own) {
      admit(head, verdict, Flag::held, head.ttl, fence);
      continue;
    }
    const auto lease = std::min(provisional_lease(), head.ttl);
    if (wakes_.wake(head, GrantMessage{now(), lease, fence})) {
      admit(head, verdict, Flag::provisional, lease, fence);
      handed_over_ = true;
    } else {
      table_.queue.pop_front();
    }
  }
}

/// The first waiters sleep until the obstacle ends, so they get a message if it ends sooner. A
/// hand-over changes who is first: a waiter that comes to the front may know a later end than those
/// that got one before it. Waiters that will ask early enough get no message.
void TableTransaction::notify_next() {
  const auto earliest = earliest_end();
  if (!earliest) return;
  const bool ends_sooner = !earliest_before_ || *earliest < *earliest_before_;
  if (!ends_sooner && !handed_over_) return;
  const NextMessage message{std::chrono::ceil<milliseconds>(*earliest - now())};
  const auto first_few = wakes_.first_few();
  std::size_t wanted = first_few.know, known = 0;
  for (std::size_t place = 0; known < wanted && place < table_.queue.size();) {
    WaiterEntry& waiter = table_.queue[place];
    const bool soon = waiter.told > now() && waiter.told <= *earliest + told_slack;
    if (waiter.token == self_ || soon) {
      ++place;
      ++known;
    } else if (wakes_.wake(waiter, message)) {
      waiter.told = *earliest;
      wanted = first_few.told;
      ++place;
      ++known;
    } else {
      table_.queue.erase(table_.queue.begin() + static_cast<std::ptrdiff_t>(place));
    }
  }
}

Refused TableTransaction::refused(Refusal::Reason why) const {
  Refused answer;
  answer.why = why;
  std::copy_if(table_.holds.begin(), table_.holds.end(), std::back_inserter(answer.holds),
               [](const HoldEntry& hold) { return hold.counts(); });
  answer.waiting = table_.queue.size();
  const auto earliest = earliest_end();
  answer.ask_again =
      earliest ? std::chrono::ceil<milliseconds>(*earliest - now()) : ask_again_anyway;
  if (why == Refusal::Reason::superseded) {
    HoldEntry newer;
    newer.owner = table_.latest->owner;
    newer.who = table_.latest->who;
    answer.holds = {newer};
    answer.ticket = table_.latest->ticket;
  }
  if (why != Refusal::Reason::held) return answer;
  const auto place = table_.find_waiter(self_);
  answer.ahead = static_cast<std::size_t>(place - table_.queue.begin());
  answer.ticket = place != table_.queue.end() ? place->ticket : last_ticket_plus_one();
  return answer;
}

Ticket TableTransaction::last_ticket_plus_one() const {
  const std::int64_t last = table_.queue.empty() ? 0 : table_.queue.back().ticket.value;
  return Ticket{std::max(last + 1, now().count())};
}

std::optional<microseconds> TableTransaction::earliest_end() const {
  std::optional<microseconds> earliest;
  for (const HoldEntry& hold : table_.holds) {
    if (!hold.counts() || end_of(hold) <= now()) continue;
    earliest = std::min(earliest.value_or(end_of(hold)), end_of(hold));
  }
  return earliest;
}

std::variant<Granted, Refused> LockTable::acquire(const Claim& claim, const Ask& ask,
                                                  const HolderIdentity& backing, Now now,
                                                  WaiterNotifier& wakes) {
  TableTransaction op(*this, now, wakes, claim.token);
  using Kind = TableTransaction::Verdict::Kind;
  const auto granted = [&] {
    const HoldEntry* own = find_hold(claim.token);
    return Granted{own->fence, own->lease};
  };
  const auto refuse = [&](Refusal::Reason why) {
    op.unqueue(claim.token);
    op.admit_waiters();
    return op.refused(why);
  };
  if (HoldEntry* own = find_hold(claim.token)) {
    if (!own->inside()) return refuse(Refusal::Reason::gone);
    own->ttl = claim.ttl;
    op.confirm(*own, claim.ttl);
    op.unqueue(claim.token);
    op.admit_waiters();
    return granted();
  }
  if (claim.latest && op.is_superseded(ask.ticket, claim.owner))
    return refuse(Refusal::Reason::superseded);
  const WaiterEntry asker = waiter_of(claim, backing, op.now());
  const auto verdict = op.rule(claim.owner, claim.limit);
  if (verdict.kind == Kind::enters) {
    op.admit(asker, verdict, Flag::held, claim.ttl, op.fence_for(verdict));
    op.admit_waiters();
    return granted();
  }
  if (verdict.kind == Kind::upgrade) return refuse(Refusal::Reason::upgrade);
  const auto ticket = claim.latest ? op.newest_ticket(ask.ticket) : ask.ticket;
  if (ask.wait && (!queue.empty() || verdict.kind == Kind::full)) {
    op.join(asker, ticket);
    if (claim.latest) op.supersede(asker, find_waiter(claim.token)->ticket);
  }
  op.grant_waiters();
  if (find_hold(claim.token) == nullptr && queue.empty()) {
    const auto now_free = op.rule(claim.owner, claim.limit);
    if (now_free.kind == Kind::fits) {
      op.admit(asker, now_free, Flag::held, claim.ttl, op.fence_for(now_free));
      if (claim.latest) op.supersede(asker, *ticket);
    }
  }
  op.notify_next();
  if (find_hold(claim.token) != nullptr) return granted();
  // This request may have granted the key to its owner in another mode.
  const bool waits = find_waiter(claim.token) != queue.end();
  const bool is_upgrade = !waits && op.rule(claim.owner, claim.limit).kind == Kind::upgrade;
  return op.refused(is_upgrade ? Refusal::Reason::upgrade : Refusal::Reason::held);
}

}  // namespace dlock
