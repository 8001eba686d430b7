#include "cas/record_views.hpp"

#include <algorithm>

namespace dlock {
namespace {

constexpr std::size_t most_holders_named = 8;

Hold hold_at(const HoldEntry& entry, const Now& now) {
  Hold hold;
  hold.kept = entry.flag == Flag::kept;
  if (!hold.kept) hold.owner = entry.owner.text;
  hold.who = entry.who;
  hold.who.command_pid = entry.backing.command.pid;
  hold.held =
      std::chrono::floor<milliseconds>(std::max(microseconds(0), now.lease_clock - entry.since));
  hold.acquired_at = WallTime(now.wall - hold.held);
  hold.lease_left = std::chrono::ceil<milliseconds>(left_of(entry, now.lease_clock));
  hold.limit = entry.limit;
  hold.fence = entry.fence;
  return hold;
}

}  // namespace

std::vector<Holder> holders_from(const std::vector<HoldEntry>& entries, const Now& now) {
  std::vector<Hold> holds;
  for (const HoldEntry& entry : entries) holds.push_back(hold_at(entry, now));
  return holders_of(std::move(holds));
}

Refusal refusal_from(const Refused& refused, const Now& now) {
  Refusal refusal;
  refusal.why = refused.why;
  refusal.held_by = holders_from(refused.holds, now);
  refusal.holders = refusal.held_by.size();
  if (refusal.held_by.size() > most_holders_named) refusal.held_by.resize(most_holders_named);
  refusal.ahead = refused.ahead;
  refusal.waiting = refused.waiting;
  refusal.ticket = refused.ticket;
  refusal.ask_again_in = refused.ask_again;
  return refusal;
}

}  // namespace dlock
