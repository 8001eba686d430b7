#include "lock/grant.hpp"

#include <algorithm>
#include <utility>

#include "lock/store.hpp"

namespace dlock {
namespace {

Limit smaller(Limit a, Limit b) {
  if (a.unlimited()) return b;
  if (b.unlimited()) return a;
  return Limit{std::min(a.owners, b.owners)};
}

void join(Holder& holder, const Holder& hold) {
  ++holder.holds;
  holder.limit = smaller(holder.limit, hold.limit);
  if (!hold.lease_left) {
    holder.lease_left.reset();
  } else if (holder.lease_left) {
    holder.lease_left = std::max(*holder.lease_left, *hold.lease_left);
  }
}

}  // namespace

bool in_cooldown(std::span<const Holder> holders) {
  return std::all_of(holders.begin(), holders.end(), [](const Holder& h) { return h.kept; });
}

const char* mode_of(std::span<const Holder> holders) {
  if (in_cooldown(holders)) return "cooldown";
  const auto any = [&](auto is) { return std::any_of(holders.begin(), holders.end(), is); };
  if (any([](const Holder& h) { return h.limit == exclusive; })) return "exclusive";
  if (any([](const Holder& h) { return !h.limit.unlimited(); })) return "semaphore";
  return "shared";
}

void age_by(std::vector<Holder>& holders, milliseconds span) {
  for (Holder& holder : holders) {
    holder.held += span;
    holder.renewed_ago += span;
    if (holder.lease_left) holder.lease_left = std::max(milliseconds(0), *holder.lease_left - span);
  }
}

void age_by(KeyState& state, milliseconds span) {
  age_by(state.holders, span);
  for (Waiter& waiter : state.waiters) waiter.waiting += span;
  if (state.latch) state.latch->left = std::max(milliseconds(0), state.latch->left - span);
}

std::vector<Holder> holders_of(std::vector<Holder> holds) {
  std::stable_sort(holds.begin(), holds.end(),
                   [](const Holder& a, const Holder& b) { return a.acquired_at < b.acquired_at; });
  std::vector<Holder> holders;
  for (Holder& hold : holds) {
    const auto same = std::find_if(holders.begin(), holders.end(), [&](const Holder& holder) {
      return !hold.kept && !holder.kept && holder.owner == hold.owner;
    });
    if (same == holders.end()) {
      holders.push_back(std::move(hold));
    } else {
      join(*same, hold);
    }
  }
  return holders;
}

/// A message takes less time than this, unless this process was stopped.
constexpr milliseconds late{500};

std::optional<Grant> handed_over_grant(const DatedAnswer& answer, const HandOver& told,
                                       milliseconds least_left) {
  // This process may have been stopped when the message came. The server's clock says how long
  // after the answer the message was sent; if less time has passed on this host, that clock was
  // set.
  const auto after = told.at - answer.clock;
  const auto now = BootClock::now();
  if (after < microseconds(0) || after > now - answer.sent) return std::nullopt;
  const auto span = std::chrono::floor<milliseconds>(after) + told.lease;
  Deadline until = std::min(valid_until(answer.sent, span), later(now, told.lease));
  if (until - now < least_left) return std::nullopt;
  // This process was stopped meanwhile, so its hold may have been evicted.
  if (now - answer.sent - after > late) until = std::min(until, later(now, told.lease / 3));
  return Grant{told.fence, Lease{told.lease, until}, false};
}

}  // namespace dlock
