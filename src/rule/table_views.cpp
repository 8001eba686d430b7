#include "rule/table_views.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace dlock {
namespace {

constexpr std::size_t most_holders_named = 8;

milliseconds passed_between(microseconds from, microseconds to) {
  return std::max(milliseconds(0), std::chrono::floor<milliseconds>(to - from));
}

}  // namespace

Hold hold_from(const HoldEntry& entry, const Now& now) {
  Hold hold;
  hold.kept = entry.flag == Flag::kept;
  if (!hold.kept) hold.owner = entry.owner.text;
  hold.who = entry.who;
  hold.who.command_pid = entry.backing.command.pid;
  hold.held = passed_between(entry.since, now.lease_clock);
  hold.acquired_at = WallTime(now.wall - hold.held);
  hold.lease_left = std::chrono::ceil<milliseconds>(left_of(entry, now.lease_clock));
  hold.limit = entry.limit;
  hold.fence = entry.fence;
  return hold;
}

std::vector<Holder> holders_from(const std::vector<HoldEntry>& entries, const Now& now) {
  std::vector<Hold> holds;
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
  const bool recent = table.last && table.last->acquired_at > WallTime(now.wall) - shown_for;
  return recent ? table.last : std::nullopt;
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
