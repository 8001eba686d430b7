#include "local/lock_table.hpp"

#include <algorithm>
#include <set>
#include <string_view>

namespace dlock {
namespace {

/// How many waiters one request looks at, so that no request takes for ever.
constexpr int queue_budget = 500;
/// A head that has not asked for that long is taken for dead, whatever its mailbox says.
constexpr std::chrono::seconds head_patience{75};
/// A queue in which nobody has asked for that long is gone.
constexpr std::chrono::seconds queue_life{120};
constexpr milliseconds provisional_lease{2000};
/// What a refusal advises when nothing with an end blocks.
constexpr milliseconds ask_again_anyway{1000};
const Owner nobody{"-"};

microseconds end_of(const HoldEntry& hold) { return hold.at + hold.lease; }

bool counts(const HoldEntry& hold) { return hold.flag != Flag::tombstone; }

milliseconds floor_left(const HoldEntry& hold, microseconds now) {
  return std::chrono::ceil<milliseconds>(std::min(hold.since, now) + hold.floor - now);
}

bool stands_before(const WaiterEntry& a, const WaiterEntry& b) {
  return a.ticket != b.ticket ? a.ticket < b.ticket : a.token < b.token;
}

/// One request at work on a table: what every kind of request does before and after its own step.
class Operation {
 public:
  /// `self`: who asks, and is answered instead of woken.
  Operation(LockTable& table, Now now, Wakes& wakes, Token self)
      : table_(table), now_(now), wakes_(wakes), self_(std::move(self)) {
    for (HoldEntry& hold : table_.holds) hold.at = std::min(hold.at, now_.lease_clock);
    earliest_before_ = earliest_end();
    purge();
    if (queue_is_gone()) table_.queue.clear();
  }

  struct Verdict {
    enum class Kind { enters, fits, upgrade, full } kind;
    const HoldEntry* inside = nullptr;  ///< with `enters`: a hold of the owner re-entered
    bool lets_in() const { return kind == Kind::enters || kind == Kind::fits; }
  };
  Verdict rule(const Owner& owner, Limit limit) const;

  /// Records a hold for `asker`, who leaves the queue.
  Granted admit(const WaiterEntry& asker, const Verdict& verdict, Flag flag, milliseconds lease);
  void join(WaiterEntry asker, std::optional<Ticket> ticket);
  void unqueue(const Token& token);
  void let_in();
  void tell_next();
  void settle() {
    let_in();
    tell_next();
  }
  Refused refused(Refusal::Why why) const;
  Ticket last_ticket_plus_one() const;
  std::optional<microseconds> earliest_end() const;
  std::optional<milliseconds> until_earliest_end() const;
  microseconds now() const { return now_.lease_clock; }
  bool more() const { return more_; }

 private:
  void purge();
  bool queue_is_gone() const {
    return std::chrono::floor<milliseconds>(table_.last_ask) + queue_life <
           std::chrono::floor<milliseconds>(now());
  }
  Fence next_fence() const {
    return Fence{std::max(table_.last_fence.value + 1, now_.wall.count())};
  }

  LockTable& table_;
  Now now_;
  Wakes& wakes_;
  Token self_;
  std::optional<microseconds> earliest_before_;
  int budget_ = queue_budget;
  bool more_ = false;
};

void Operation::purge() {
  for (std::size_t i = 0; i < table_.holds.size();) {
    HoldEntry& hold = table_.holds[i];
    const bool expired = end_of(hold) <= now();
    if (!expired || !end_hold(table_, hold, now())) ++i;
  }
}

Operation::Verdict Operation::rule(const Owner& owner, Limit limit) const {
  const HoldEntry* outer = nullptr;
  std::set<std::string_view> owners;
  std::int64_t inside = 0;
  bool admitted_by_all = true;
  for (const HoldEntry& hold : table_.holds) {
    if (!counts(hold)) continue;
    if (!hold.inside() || owners.insert(hold.owner.text).second) ++inside;
    if (hold.inside() && owner.is_or_below(hold.owner) &&
        (outer == nullptr || hold.owner.text.size() > outer->owner.text.size())) {
      outer = &hold;
    }
  }
  using Kind = Verdict::Kind;
  if (outer != nullptr) {
    return limit.admits(inside) ? Verdict{Kind::enters, outer} : Verdict{Kind::upgrade};
  }
  for (const HoldEntry& hold : table_.holds) {
    if (counts(hold) && !hold.limit.admits(inside + 1)) admitted_by_all = false;
  }
  return Verdict{admitted_by_all && limit.admits(inside + 1) ? Kind::fits : Kind::full};
}

Granted Operation::admit(const WaiterEntry& asker, const Verdict& verdict, Flag flag,
                         milliseconds lease) {
  HoldEntry hold{asker.token, asker.owner, flag,        now(),        now(),     lease,
                 asker.ttl,   asker.floor, asker.limit, next_fence(), asker.who, asker.backing};
  if (verdict.inside != nullptr) {
    hold.owner = verdict.inside->owner;
    hold.fence = verdict.inside->fence;
  } else {
    table_.last_fence = hold.fence;
  }
  unqueue(hold.token);
  table_.holds.push_back(hold);
  return Granted{hold.fence, lease};
}

void Operation::join(WaiterEntry asker, std::optional<Ticket> ticket) {
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

void Operation::unqueue(const Token& token) {
  const auto place = table_.find_waiter(token);
  if (place != table_.queue.end()) table_.queue.erase(place);
}

void Operation::let_in() {
  for (; !table_.queue.empty(); --budget_) {
    if (budget_ == 0) {
      more_ = true;
      return;
    }
    const WaiterEntry head = table_.queue.front();
    const bool own = head.token == self_;
    if (!own && head.seen < now() - head_patience) {
      table_.queue.pop_front();
      continue;
    }
    const Verdict verdict = rule(head.owner, head.limit);
    if (!verdict.lets_in()) return;
    if (own) {
      admit(head, verdict, Flag::held, head.ttl);
      continue;
    }
    const auto lease = std::min(provisional_lease, head.ttl);
    const Fence fence = verdict.inside != nullptr ? verdict.inside->fence : next_fence();
    if (wakes_.wake(head, GrantMessage{now(), lease, fence})) {
      admit(head, verdict, Flag::provisional, lease);
    } else {
      table_.queue.pop_front();
    }
  }
}

/// Whoever is first must hear if what blocks it ends sooner than it was told: it sleeps until then.
/// Who was told of a moment soon enough before will ask then, and is left in peace.
void Operation::tell_next() {
  const auto earliest = earliest_end();
  if (!earliest || (earliest_before_ && *earliest >= *earliest_before_)) return;
  const NextMessage message{std::chrono::ceil<milliseconds>(*earliest - now())};
  const std::size_t first_few = wakes_.told_at_once();
  for (std::size_t place = 0; place < first_few && place < table_.queue.size();) {
    if (budget_-- == 0) {
      more_ = true;
      return;
    }
    WaiterEntry& waiter = table_.queue[place];
    const bool soon = waiter.told > now() && waiter.told <= *earliest + provisional_lease;
    if (waiter.token == self_ || soon) {
      ++place;
    } else if (wakes_.wake(waiter, message)) {
      waiter.told = *earliest;
      ++place;
    } else {
      table_.queue.erase(table_.queue.begin() + static_cast<std::ptrdiff_t>(place));
    }
  }
}

Refused Operation::refused(Refusal::Why why) const {
  Refused answer;
  answer.why = why;
  std::copy_if(table_.holds.begin(), table_.holds.end(), std::back_inserter(answer.holds), counts);
  answer.waiting = table_.queue.size();
  answer.ask_again = until_earliest_end().value_or(ask_again_anyway);
  if (why != Refusal::Why::held) return answer;
  const auto place = table_.find_waiter(self_);
  answer.ahead = static_cast<std::size_t>(place - table_.queue.begin());
  answer.ticket = place != table_.queue.end() ? place->ticket : last_ticket_plus_one();
  return answer;
}

Ticket Operation::last_ticket_plus_one() const {
  const std::int64_t last = table_.queue.empty() ? 0 : table_.queue.back().ticket.value;
  return Ticket{std::max(last + 1, now().count())};
}

std::optional<microseconds> Operation::earliest_end() const {
  std::optional<microseconds> earliest;
  for (const HoldEntry& hold : table_.holds) {
    if (!counts(hold) || end_of(hold) <= now()) continue;
    earliest = std::min(earliest.value_or(end_of(hold)), end_of(hold));
  }
  return earliest;
}

std::optional<milliseconds> Operation::until_earliest_end() const {
  const auto earliest = earliest_end();
  if (!earliest) return std::nullopt;
  return std::chrono::ceil<milliseconds>(*earliest - now());
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
  LockTable copy = *this;
  for (std::size_t i = 0; i < copy.holds.size();) {
    HoldEntry& hold = copy.holds[i];
    const bool expired = left_of(hold, now.lease_clock) <= microseconds(0);
    if (expired && end_hold(copy, hold, now.lease_clock)) continue;
    if (counts(hold)) live.push_back(hold);
    ++i;
  }
  return live;
}

Outcome<std::variant<Granted, Refused>> LockTable::acquire(const Claim& claim, const Ask& ask,
                                                           const Backing& backing, Now now,
                                                           Wakes& wakes) {
  Operation op(*this, now, wakes, claim.token);
  using Kind = Operation::Verdict::Kind;
  const auto finish = [&](std::variant<Granted, Refused> answer) {
    return Outcome<std::variant<Granted, Refused>>{std::move(answer), op.more()};
  };
  const auto refuse = [&](Refusal::Why why) {
    op.unqueue(claim.token);
    op.settle();
    return finish(op.refused(why));
  };
  if (HoldEntry* own = find_hold(claim.token)) {
    if (!own->inside()) return refuse(Refusal::Why::gone);
    own->at = op.now();
    own->ttl = own->lease = claim.ttl;
    own->flag = Flag::held;
    const Granted same{own->fence, own->lease};
    op.unqueue(claim.token);
    op.settle();
    return finish(same);
  }
  const WaiterEntry asker{claim.token, claim.owner, {},          op.now(),  {},
                          claim.ttl,   claim.floor, claim.limit, claim.who, backing};
  const auto verdict = op.rule(claim.owner, claim.limit);
  if (verdict.kind == Kind::enters) {
    const Granted granted = op.admit(asker, verdict, Flag::held, claim.ttl);
    op.settle();
    return finish(granted);
  }
  if (verdict.kind == Kind::upgrade) return refuse(Refusal::Why::upgrade);
  if (ask.wait && (!queue.empty() || verdict.kind == Kind::full)) op.join(asker, ask.ticket);
  op.let_in();
  if (find_hold(claim.token) == nullptr && queue.empty()) {
    const auto now_free = op.rule(claim.owner, claim.limit);
    if (now_free.kind == Kind::fits) op.admit(asker, now_free, Flag::held, claim.ttl);
  }
  op.tell_next();
  if (const HoldEntry* own = find_hold(claim.token)) return finish(Granted{own->fence, own->lease});
  return finish(op.refused(Refusal::Why::held));
}

Outcome<std::optional<milliseconds>> LockTable::renew(const Token& token,
                                                      std::optional<milliseconds> ttl, Now now,
                                                      Wakes& wakes) {
  Operation op(*this, now, wakes, Token{});
  std::optional<milliseconds> lease;
  HoldEntry* own = find_hold(token);
  if (own != nullptr && own->inside()) {
    lease = ttl.value_or(own->ttl);
    own->at = op.now();
    own->lease = *lease;
    own->flag = Flag::held;
  }
  op.settle();
  return {lease, op.more()};
}

Outcome<Released> LockTable::release(const Token& token, const ReleaseTerms& terms, Now now,
                                     Wakes& wakes) {
  Operation op(*this, now, wakes, Token{});
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
    HoldEntry tombstone;
    tombstone.token = token;
    tombstone.owner = nobody;
    tombstone.flag = Flag::tombstone;
    tombstone.at = tombstone.since = op.now();
    tombstone.lease = tombstone.ttl = terms.tombstone;
    tombstone.limit = no_limit;
    holds.push_back(std::move(tombstone));
  }
  op.settle();
  return {answer, op.more()};
}

Outcome<std::vector<HoldEntry>> LockTable::force(std::optional<Fence> fence, Now now,
                                                 Wakes& wakes) {
  Operation op(*this, now, wakes, Token{});
  std::vector<HoldEntry> out;
  std::erase_if(holds, [&](const HoldEntry& hold) {
    const bool thrown = counts(hold) && (!fence || hold.fence == *fence);
    if (thrown) out.push_back(hold);
    return thrown;
  });
  op.settle();
  return {std::move(out), op.more()};
}

Outcome<std::optional<milliseconds>> LockTable::settle(Now now, Wakes& wakes) {
  Operation op(*this, now, wakes, Token{});
  op.settle();
  return {op.until_earliest_end(), op.more()};
}

}  // namespace dlock
