#include "rule/lock_table.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "rule/admission.hpp"

namespace dlock {
namespace {

const Owner nobody{"-"};

milliseconds min_hold_left(const HoldEntry& hold, microseconds now) {
  return std::chrono::ceil<milliseconds>(std::min(hold.since, now) + hold.min_hold - now);
}

constexpr std::size_t most_holders_named = 8;

/// Whether this is the tombstone of an evicted hold.
bool is_of_evicted(const HoldEntry& hold) {
  return hold.flag == Flag::tombstone && !hold.who.host.empty();
}

milliseconds passed_between(microseconds from, microseconds to) {
  return std::max(milliseconds(0), std::chrono::floor<milliseconds>(to - from));
}

}  // namespace

WaiterEntry waiter_of(const Claim& claim, const HolderIdentity& backing, microseconds now) {
  return {claim.token, claim.owner, {},          now,       {},
          claim.ttl,   claim.floor, claim.limit, claim.who, backing};
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

microseconds left_of(const HoldEntry& hold, microseconds now) {
  return hold.lease - (now - std::min(hold.at, now));
}

bool end_hold(LockTable& table, HoldEntry& hold, microseconds now) {
  const milliseconds left = min_hold_left(hold, now);
  if (!hold.inside() || left <= milliseconds(0)) {
    table.holds.erase(table.holds.begin() + (&hold - table.holds.data()));
    return true;
  }
  hold.lease = hold.min_hold;
  hold.at = std::min(hold.since, now);
  hold.flag = Flag::cooldown;
  hold.owner = nobody;
  return false;
}

void note_end(LockTable& table, Fence fence, EndOfHold end) {
  if (table.last && table.last->fence == fence) table.last->end = std::move(end);
}

bool expire_hold(LockTable& table, HoldEntry& hold, microseconds now) {
  if (hold.flag == Flag::provisional) hold.min_hold = milliseconds(0);
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
  // Expire the holds of a copy as a request does, so that min-hold outlasts the lease here too.
  LockTable copy{holds, {}, last_fence, {}, last_ask};
  expire_holds(copy, now.lease_clock, [&](const HoldEntry& hold) {
    return left_of(hold, now.lease_clock) <= microseconds(0);
  });
  std::erase_if(copy.holds, [](const HoldEntry& hold) { return !hold.counts(); });
  return std::move(copy.holds);
}

std::optional<milliseconds> LockTable::renew(const Token& token, std::optional<milliseconds> ttl,
                                             Now now, WaiterNotifier& wakes) {
  TableTransaction op(*this, now, wakes, Token{});
  std::optional<milliseconds> lease;
  HoldEntry* own = find_hold(token);
  if (own != nullptr && own->inside()) {
    lease = ttl.value_or(own->ttl);
    op.confirm(*own, *lease);
  }
  op.admit_waiters();
  return lease;
}

Released LockTable::release(const Token& token, const ReleaseOptions& how, Now now,
                            WaiterNotifier& wakes) {
  TableTransaction op(*this, now, wakes, Token{});
  Released answer = Released::not_held;
  HoldEntry* own = find_hold(token);
  if (own != nullptr && own->inside()) {
    answer = Released::yes;
    if (how.mode == ReleaseMode::ignore_floor) own->min_hold = milliseconds(0);
    note_end(*this, own->fence, {WallTime(now.wall), how.exit_code});
    end_hold(*this, *own, op.now());
  } else if (find_waiter(token) != queue.end()) {
    answer = Released::left_queue;
  } else if (own != nullptr && own->flag == Flag::tombstone) {
    // An evicted holder that releases has ended: it may not run beside the next one.
    own->ttl = milliseconds(0);
  }
  op.unqueue(token);
  op.admit_waiters();
  return answer;
}

std::vector<HoldEntry> LockTable::evict(const Eviction& how, Now now, WaiterNotifier& wakes) {
  TableTransaction op(*this, now, wakes, Token{});
  std::vector<HoldEntry> out;
  std::erase_if(holds, [&](HoldEntry& hold) {
    if (!hold.counts() || (how.fence && hold.fence != *how.fence)) return false;
    out.push_back(hold);
    if (how.asks) {
      if (hold.inside() && !hold.stop_asked_by) hold.stop_asked_by = how.by;
      return false;
    }
    if (!hold.inside()) return true;
    note_end(*this, hold.fence, {WallTime(now.wall), {}, how.by});
    hold = tombstone(hold.token, hold.lease, op.now());
    hold.who = how.by;
    return false;
  });
  op.admit_waiters();
  return out;
}

std::optional<Who> LockTable::evicted_by(const Token& token) const {
  for (const HoldEntry& hold : holds) {
    if (is_of_evicted(hold) && hold.token == token) return hold.who;
  }
  return std::nullopt;
}

std::optional<Predecessor> LockTable::predecessor(Now now) const {
  Predecessor longest;
  for (const HoldEntry& hold : holds) {
    const auto left = std::chrono::ceil<milliseconds>(left_of(hold, now.lease_clock));
    const bool may_run = is_of_evicted(hold) && hold.ttl > milliseconds(0);
    if (may_run && left > longest.left) longest = {hold.who, left};
  }
  return longest.left > milliseconds(0) ? std::optional(longest) : std::nullopt;
}

void LockTable::admit_waiters(Now now, WaiterNotifier& wakes) {
  TableTransaction(*this, now, wakes, Token{}).admit_waiters();
}

Holder hold_from(const HoldEntry& entry, const Now& now) {
  Holder hold;
  hold.kept = entry.flag == Flag::cooldown;
  if (!hold.kept) hold.owner = entry.owner.text;
  hold.who = entry.who;
  hold.who.command_pid = entry.backing.command.pid;
  hold.held = passed_between(entry.since, now.lease_clock);
  hold.acquired_at = WallTime(now.wall - hold.held);
  hold.lease_left = std::chrono::ceil<milliseconds>(left_of(entry, now.lease_clock));
  hold.ttl = entry.ttl;
  hold.renewed_ago = passed_between(entry.at, now.lease_clock);
  hold.limit = entry.limit;
  hold.fence = entry.fence;
  hold.stop_asked_by = entry.stop_asked_by;
  return hold;
}

std::vector<Holder> holders_from(const std::vector<HoldEntry>& entries, const Now& now) {
  std::vector<Holder> holds;
  for (const HoldEntry& entry : entries) holds.push_back(hold_from(entry, now));
  return holders_of(std::move(holds));
}

Waiter waiter_from(const WaiterEntry& entry, std::size_t position, const Now& now) {
  Waiter waiter;
  waiter.position = position;
  waiter.owner = entry.owner.text;
  waiter.who = entry.who;
  waiter.ticket = entry.ticket;
  waiter.waiting = passed_between(microseconds(entry.ticket.value), now.lease_clock);
  waiter.limit = entry.limit;
  return waiter;
}

std::optional<LastGrant> recent_grant(const LockTable& table, const Now& now) {
  constexpr std::chrono::hours shown_for{7 * 24};
  auto last = table.last;
  if (!last || last->acquired_at <= WallTime(now.wall) - shown_for) return std::nullopt;
  // A client of cas that has not just read the engine's clock takes it for earlier than it is.
  if (last->end) last->end->at = std::max(last->end->at, last->acquired_at);
  return last;
}

Refusal refusal_from(const Refused& refused, std::vector<Holder> holders) {
  Refusal refusal;
  refusal.why = refused.why;
  refusal.held_by = std::move(holders);
  refusal.holders = refusal.held_by.size();
  if (refusal.held_by.size() > most_holders_named) refusal.held_by.resize(most_holders_named);
  refusal.ahead = refused.ahead;
  refusal.waiting = refused.waiting;
  refusal.ticket = refused.ticket;
  refusal.ask_again_in = refused.ask_again;
  return refusal;
}

}  // namespace dlock
