#include "reference/redis_table.hpp"

#include <algorithm>

#include "rule/admission.hpp"

namespace dlock::reference {
namespace {

/// A head of the queue that has not asked for so long counts as dead.
constexpr std::chrono::seconds longest_head_silence{75};
/// The lease that a node grants to a waiter by message, until the waiter confirms.
constexpr milliseconds provisional_lease_on_node{2000};
/// How much later than the end of the blocking hold a waiter may have been told to ask.
constexpr milliseconds told_slack{1000};
/// How many absent waiters at the head of the queue keep their position.
constexpr std::size_t most_absent = 32;
/// When a refused client asks again if no hold with an end blocks it.
constexpr milliseconds ask_again_anyway{1000};

bool is_seat(Limit limit) { return !limit.unlimited() && limit != exclusive; }

/// Whether one is a reader and the other the owner of a seat.
bool apart(Limit a, Limit b) {
  return (a.unlimited() && is_seat(b)) || (is_seat(a) && b.unlimited());
}

/// One request that works on a server's table. It uses the steps of the rule unless a server adds
/// to them.
class RedisTransaction {
 public:
  using Verdict = TableTransaction::Verdict;

  /// `self`: the token that asks; it gets a reply instead of a message.
  RedisTransaction(RedisTable& table, ServerNow now, WaiterNotifier& wakes, const Token& self)
      : table_(table),
        stored_(table.stored),
        now_(now),
        wakes_(wakes),
        self_(self),
        earliest_before_(earliest_end()),
        steps(stored_, Now{now.clock, now.clock}, wakes, self) {
    std::erase_if(table_.notes, [&](const auto& waiter) {
      return stored_.find_waiter(waiter.first) == stored_.queue.end();
    });
  }

  Verdict rule(const Owner& owner, Limit limit) const {
    using Kind = Verdict::Kind;
    const Verdict verdict = steps.rule(owner, limit);
    const auto any = [&](const auto& is_such) {
      return std::any_of(stored_.holds.begin(), stored_.holds.end(),
                         [&](const HoldEntry& hold) { return hold.counts() && is_such(hold); });
    };
    if (verdict.kind == Kind::enters && now_.is_node && is_seat(limit)) {
      const bool beside_reader = any([&](const HoldEntry& hold) {
        return hold.inside() && hold.limit.unlimited() && hold.owner != verdict.inside->owner;
      });
      if (beside_reader) return Verdict{Kind::upgrade};
    }
    const bool kept_apart =
        now_.is_node && any([&](const HoldEntry& hold) { return apart(limit, hold.limit); });
    if (verdict.kind == Kind::fits && kept_apart) return Verdict{Kind::full};
    return verdict;
  }
  /// The same, but no new owner is admitted while the server is in quarantine.
  Verdict quarantined_rule(const Owner& owner, Limit limit) const {
    Verdict verdict = rule(owner, limit);
    if (now_.quarantine > microseconds(0) && verdict.kind == Verdict::Kind::fits) {
      verdict.kind = Verdict::Kind::full;
    }
    return verdict;
  }
  Fence fence_for(const Verdict& verdict, std::optional<Fence> proposal) const {
    if (verdict.inside != nullptr) return verdict.inside->fence;
    const microseconds wanted(proposal ? proposal->value : now_.clock.count());
    const auto allowed =
        std::clamp(wanted, now_.clock - furthest_proposal, now_.clock + furthest_proposal);
    return Fence{std::max(stored_.last_fence.value + 1, allowed.count())};
  }
  /// Gives this fence to all holds of an owner, which share one; the last fence is at least that.
  void agree(const Owner& owner, Fence fence) {
    stored_.last_fence = std::max(stored_.last_fence, fence);
    for (HoldEntry& hold : stored_.holds) {
      if (hold.inside() && hold.owner == owner) hold.fence = fence;
    }
  }
  /// Moves holds with this fence from inner owners to this owner: they came back before the outer
  /// hold.
  void adopt_inner(const Owner& owner, Fence fence) {
    const bool is_back =
        std::any_of(stored_.holds.begin(), stored_.holds.end(),
                    [&](const HoldEntry& hold) { return hold.inside() && hold.owner == owner; });
    if (is_back) return;
    for (HoldEntry& hold : stored_.holds) {
      const bool inner = hold.inside() && hold.owner.is_or_below(owner);
      if (inner && hold.fence == fence) hold.owner = owner;
    }
  }
  void join(const WaiterEntry& asker, std::optional<Ticket> ticket, const WaiterNotes& notes) {
    steps.join(asker, ticket);
    table_.notes[asker.token] = notes;
  }
  /// Supersedes as the rule does, but keeps a waiter with a reservation, since the other nodes hold
  /// it.
  void supersede(const WaiterEntry& newer, Ticket ticket) {
    if (stored_.latest && stored_.latest->token != newer.token) {
      const auto older = stored_.find_waiter(stored_.latest->token);
      const bool waits = older != stored_.queue.end();
      const WaiterNotes notes = waits ? table_.notes[older->token] : WaiterNotes{};
      // The rule then knows of no older claim, and neither wakes nor removes one.
      if (notes.reserved) stored_.latest.reset();
      // The rule then sends no message that nobody receives.
      if (notes.absent_until && !notes.reserved) steps.unqueue(older->token);
    }
    steps.supersede(newer, ticket);
  }
  /// `asker_fits`: only the queue keeps out the claim that asks.
  void grant_waiters(bool asker_fits = false) {
    while (!stored_.queue.empty()) {
      const WaiterEntry head = stored_.queue.front();
      WaiterNotes& notes = table_.notes[head.token];
      const bool own = head.token == self_;
      // A reservation ends with the lease that the other nodes knew when it was made. A later
      // admission could bring the hold back after somebody else has held the key.
      const bool over =
          notes.reserved && (head.seen > now_.clock || head.seen + head.ttl <= now_.clock);
      const bool gone = head.seen < now_.clock - longest_head_silence || stays_away(notes);
      if (over || (!own && gone)) {
        stored_.queue.pop_front();
        continue;
      }
      const Verdict verdict =
          notes.reserved ? rule(head.owner, head.limit) : quarantined_rule(head.owner, head.limit);
      if (verdict.kind == Verdict::Kind::upgrade && !notes.reserved) {
        if (!own && !notes.absent_until) wakes_.wake(head, NextMessage{milliseconds(0)});
        stored_.queue.pop_front();
        continue;
      }
      if (!verdict.lets_in()) {
        const bool must_live = asker_fits && !own && !notes.reserved;
        if (must_live && table_.longest_absence > milliseconds(0)) ask_for_life_of_head();
        return;
      }
      if (notes.reserved) {
        steps.admit(head, verdict, Flag::held, head.ttl, *notes.reserved);
        stored_.find_hold(head.token)->at = head.seen;
        agree(stored_.find_hold(head.token)->owner, *notes.reserved);
        continue;
      }
      const Fence fence = fence_for(verdict, notes.proposal);
      if (own) {
        steps.admit(head, verdict, Flag::held, head.ttl, fence);
        continue;
      }
      const auto lease = std::min(provisional_lease(), head.ttl);
      if (reaches_head(GrantMessage{now_.clock, lease, fence})) {
        steps.admit(head, verdict, Flag::provisional, lease, fence);
        handed_over_ = true;
      } else if (moment_end_) {
        return;
      }
    }
  }
  /// The first waiters sleep until the blocking hold ends, so they are notified if it ends sooner.
  /// After a hand-over the first waiters are others: one that has come to the front may know a
  /// later end than the ones notified before. Waiters that will ask early enough get no message.
  void notify_next() {
    const auto earliest = earliest_end();
    if (!earliest) return;
    const bool ends_sooner = !earliest_before_ || *earliest < *earliest_before_;
    if (!ends_sooner && !handed_over_) return;
    const NextMessage message{std::chrono::ceil<milliseconds>(*earliest - now_.clock)};
    const auto first_few = wakes_.first_few();
    std::size_t wanted = first_few.know, known = 0, absent = 0;
    for (std::size_t place = 0; known < wanted && place < stored_.queue.size();) {
      WaiterEntry& waiter = stored_.queue[place];
      WaiterNotes& notes = table_.notes[waiter.token];
      const bool soon =
          notes.reserved || (waiter.told > now_.clock && waiter.told <= *earliest + told_slack);
      if (waiter.token == self_ || (soon && !notes.absent_until)) {
        ++place;
        ++known;
      } else if (!notes.absent_until && wakes_.wake(waiter, message)) {
        waiter.told = *earliest;
        wanted = first_few.told;
        ++place;
        ++known;
      } else if (keeps_place(notes, absent)) {
        ++place;
        ++absent;
      } else {
        stored_.queue.erase(stored_.queue.begin() + static_cast<std::ptrdiff_t>(place));
      }
    }
  }
  void admit_waiters() {
    grant_waiters();
    notify_next();
  }
  Refused refused(Refusal::Reason why) const {
    Refused answer = steps.refused(why);
    const auto earliest = earliest_end();
    answer.ask_again =
        earliest ? std::chrono::ceil<milliseconds>(*earliest - now_.clock) : ask_again_anyway;
    return answer;
  }

 private:
  milliseconds provisional_lease() const {
    const milliseconds lease = steps.provisional_lease();
    return now_.is_node ? std::min(lease, provisional_lease_on_node) : lease;
  }
  /// True also if the clock went back.
  bool stays_away(const WaiterNotes& waiter) const {
    return waiter.absent_until && (*waiter.absent_until <= now_.clock ||
                                   *waiter.absent_until > now_.clock + table_.longest_absence);
  }
  /// Whether a waiter without a listener may still come, with `absent_before` others before it. Its
  /// moment begins when its absence is noticed.
  bool keeps_place(WaiterNotes& waiter, std::size_t absent_before) const {
    const bool may_come = table_.longest_absence > milliseconds(0) && absent_before < most_absent;
    if (!may_come || stays_away(waiter)) return false;
    if (!waiter.absent_until) waiter.absent_until = now_.clock + table_.longest_absence;
    return true;
  }
  /// Whether the head receives the message. If nobody listens, its moment begins, or it leaves the
  /// queue.
  bool reaches_head(const Message& message) {
    const WaiterEntry head = stored_.queue.front();
    WaiterNotes& notes = table_.notes[head.token];
    if (!notes.absent_until && wakes_.wake(head, message)) return true;
    if (keeps_place(notes, 0)) {
      moment_end_ = notes.absent_until;
    } else {
      stored_.queue.pop_front();
    }
    return false;
  }
  /// The head, for which there is no room, must be alive to keep out a claim that would fit.
  void ask_for_life_of_head() {
    const auto earliest = *earliest_end();
    const NextMessage message{std::chrono::ceil<milliseconds>(earliest - now_.clock)};
    if (reaches_head(message)) stored_.queue.front().told = earliest;
  }
  std::optional<microseconds> earliest_end() const {
    if (now_.quarantine > microseconds(0)) return now_.clock + now_.quarantine;
    std::optional<microseconds> earliest = moment_end_;
    for (const HoldEntry& hold : stored_.holds) {
      const auto left = left_of(hold, now_.clock);
      if (!hold.counts() || left <= microseconds(0)) continue;
      earliest = std::min(earliest.value_or(now_.clock + left), now_.clock + left);
    }
    return earliest;
  }

  RedisTable& table_;
  LockTable& stored_;
  const ServerNow now_;
  WaiterNotifier& wakes_;
  const Token self_;
  /// The key is free until then for a waiter that may be on its way here.
  std::optional<microseconds> moment_end_;
  const std::optional<microseconds> earliest_before_;  ///< before `steps` removes expired holds
  bool handed_over_ = false;

 public:
  TableTransaction steps;  ///< a server uses these as they are
};

}  // namespace

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
    op.steps.unqueue(claim.token);
    op.admit_waiters();
    return op.refused(why);
  };
  if (HoldEntry* own = stored.find_hold(claim.token)) {
    if (!own->inside()) return refuse(Refusal::Reason::gone);
    own->ttl = claim.ttl;
    op.steps.confirm(*own, claim.ttl);
    op.steps.unqueue(claim.token);
    op.admit_waiters();
    return granted();
  }
  if (claim.latest && op.steps.is_superseded(ask.ticket, claim.owner))
    return refuse(Refusal::Reason::superseded);
  const WaiterEntry asker = waiter_of(claim, {}, now.clock);
  const auto verdict = op.quarantined_rule(claim.owner, claim.limit);
  if (verdict.kind == Kind::enters) {
    op.steps.admit(asker, verdict, Flag::held, claim.ttl, op.fence_for(verdict, proposal));
    op.admit_waiters();
    return granted();
  }
  if (verdict.kind == Kind::upgrade) return refuse(Refusal::Reason::upgrade);
  const auto ticket = claim.latest ? op.steps.newest_ticket(ask.ticket) : ask.ticket;
  if (ask.wait && (!stored.queue.empty() || verdict.kind == Kind::full)) {
    op.join(asker, ticket, {proposal, {}, {}});
    if (claim.latest) op.supersede(asker, stored.find_waiter(claim.token)->ticket);
  }
  op.grant_waiters(verdict.kind == Kind::fits);
  if (stored.find_hold(claim.token) == nullptr && stored.queue.empty()) {
    const auto now_free = op.quarantined_rule(claim.owner, claim.limit);
    if (now_free.kind == Kind::fits) {
      op.steps.admit(asker, now_free, Flag::held, claim.ttl, op.fence_for(now_free, proposal));
      if (claim.latest && (!now.is_node || ask.ticket)) op.supersede(asker, *ticket);
    }
  }
  op.notify_next();
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
    op.steps.confirm(*own, *lease);
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
    op.steps.confirm(*own, own->ttl);
    op.agree(own->owner, fence);
  } else if (own == nullptr && verdict.lets_in()) {
    op.steps.admit(waiter_of(claim, {}, now.clock), verdict, Flag::held, claim.ttl, fence);
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
    note_end(stored, own->fence, {WallTime(now.clock), terms.exit_code});
    end_hold(stored, *own, now.clock);
  } else if (stored.find_waiter(token) != stored.queue.end()) {
    answer = Released::left_queue;
  } else if (own != nullptr && own->flag == Flag::tombstone) {
    own->ttl = milliseconds(0);
  }
  op.steps.unqueue(token);
  if (terms.unsure && stored.find_hold(token) == nullptr) {
    stored.holds.push_back(tombstone(token, terms.tombstone, now.clock));
  }
  op.admit_waiters();
  return answer;
}

std::vector<HoldEntry> RedisTable::force(const Eviction& how, ServerNow now,
                                         WaiterNotifier& wakes) {
  RedisTransaction op(*this, now, wakes, Token{});
  std::vector<HoldEntry> out;
  std::erase_if(stored.holds, [&](HoldEntry& hold) {
    if (!hold.counts() || (how.fence && hold.fence != *how.fence)) return false;
    out.push_back(hold);
    if (how.asks) {
      if (hold.inside() && !hold.stop_asked_by) hold.stop_asked_by = how.by;
      return false;
    }
    if (!hold.inside()) return true;
    note_end(stored, hold.fence, {WallTime(now.clock), {}, how.by});
    hold = tombstone(hold.token, hold.lease, now.clock);
    hold.who = how.by;
    return false;
  });
  op.admit_waiters();
  return out;
}

void RedisTable::admit_waiters(ServerNow now, WaiterNotifier& wakes) {
  RedisTransaction(*this, now, wakes, Token{}).admit_waiters();
}

}  // namespace dlock::reference
