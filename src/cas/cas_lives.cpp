#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.hpp"
#include "cas/cas_store.hpp"

namespace dlock {
namespace {

/// A dead waiter is noticed after this time at the latest, however long the ttl of its claim.
constexpr milliseconds longest_lease_of_a_waiter{30'000};
constexpr int renewals_of_a_life = 3;
constexpr milliseconds longest_renewal{5000};
/// How long a client waits for the revocation of unused leases.
constexpr milliseconds courtesy{20};
/// A waiter for a shared lock or a semaphore watches this many of the waiters before it.
constexpr std::ptrdiff_t watched_in_queue = 8;
constexpr std::size_t most_watched = 64;
/// A lease that another client asked for may be this much longer than asked for.
constexpr milliseconds granted_more{3000};

bool suits(const PlaceLease& lease, milliseconds wanted) {
  if (lease.id == 0) return false;
  if (lease.asked != milliseconds(0)) return lease.asked == wanted;
  return lease.length >= wanted && lease.length <= wanted + granted_more;
}

bool holds_now(const HoldEntry* hold) { return hold != nullptr && hold->inside(); }

}  // namespace

CasStore::~CasStore() {
  for (const auto& [asked, own] : lives_) {
    if (own.waits && own.lease.id != 0) spare_.push_back(own.lease.id);
  }
  revoke_spare(nullptr, {later(BootClock::now(), courtesy), -1});
}

/// Returns the record that the change starts from: the known one, or one that is read together with
/// the first request for the own life. If another store that renews the same hold has attached the
/// life to its own lease and ended ours, this renews the other lease.
Snapshot CasStore::first_read(const Change& how, const std::string& name) {
  constexpr int most_leases = 4;
  if (how.over) return *how.over;
  if (how.life == nullptr) return backend_->read(name, how.channel, how.call_options);
  PlaceLease& lease = how.life->lease;
  for (int tries = 1;; ++tries) {
    const std::int64_t before = lease.id;
    Snapshot seen = leases_->read_with(lease, name, how.call_options);
    const auto life = seen.lives->find(life_name(how.self));
    if (lease.id != 0 || life == seen.lives->end()) return seen;
    if (life->second == before || tries == most_leases) {
      // The read may have been done before the lease ended.
      seen.lives->erase(life);
      return seen;
    }
    lease = PlaceLease{};
    lease.id = life->second;
  }
}

/// Adopts the lease that another client began for the hold that we renew. If there is none, returns
/// the record, in which this token has no life.
std::optional<Snapshot> CasStore::adopt_lease(const LockKey& key, const Token& token, OwnLife& life,
                                              const CallOptions& call_options) {
  Snapshot seen = backend_->read(lock_record(key), "", call_options);
  const auto found = seen.lives->find(life_name(token));
  life.lease = PlaceLease{};
  if (found == seen.lives->end()) return seen;
  life.lease.id = found->second;
  return std::nullopt;
}

/// Replaces a lease of the wrong length by the one that was granted. If both are equally long, the
/// old one stays, because the engine may have a minimum length.
void CasStore::take_lease(OwnLife& life, const PlaceLease& granted) {
  if (life.lease.id != 0 && life.lease.length == granted.length) {
    life.lease.asked = granted.asked;
    spare_.push_back(granted.id);
    return;
  }
  if (life.lease.id != 0) life.replaced = life.lease.id;
  life.lease = granted;
}

/// Attaches the own entry, if it is still there after the change, to a lease of the right length.
void CasStore::keep_life(OpenRecord& record, const Snapshot& seen, const Change& how,
                         Update& update) {
  LockTable& table = record.table;
  OwnLife& life = *how.life;
  const HoldEntry* hold = table.find_hold(how.self);
  const auto waiter = table.find_waiter(how.self);
  const bool waits = waiter != table.queue.end();
  if (!holds_now(hold) && !waits) return;
  // From a try that lost the race; nobody renews it while this client waits.
  if (waits && life.min_hold.id != 0) spare_.push_back(std::exchange(life.min_hold.id, 0));
  auto wanted = waits ? std::min(waiter->ttl, longest_lease_of_a_waiter) : hold->ttl;
  if (!waits && hold->flag == Flag::held) wanted = hold->lease;
  if (!suits(life.lease, wanted)) take_lease(life, leases_->grant(wanted, how.call_options));
  const std::string name = life_name(how.self);
  const auto there = seen.lives->find(name);
  if (there == seen.lives->end() || there->second != life.lease.id) {
    update.begun_lives[name] = life.lease.id;
  }
  std::erase_if(update.wakeups,
                [&](const Wakeup& wakeup) { return update.begun_lives.contains(wakeup.channel); });
}

/// Begins the min-hold of the own hold at its first confirmation, or at a release before that.
void CasStore::begin_min_hold(OpenRecord& record, const Snapshot& seen, const Change& how,
                              Update& update) {
  const HoldEntry* hold = record.table.find_hold(how.self);
  const std::string name = min_hold_life_name(how.self);
  const bool begins = hold != nullptr && hold->counts() && !record.held_before(how.self) &&
                      !seen.lives->contains(name);
  if (!begins || hold->floor <= milliseconds(0)) return;
  PlaceLease& min_hold = lives_[{how.key, how.self}].min_hold;
  if (min_hold.id == 0) min_hold = leases_->grant(hold->floor, how.call_options);
  update.begun_lives[name] = min_hold.id;
}

Lease CasStore::lease_from(const Snapshot& seen, milliseconds length, const OwnLife* life) const {
  if (life == nullptr) return {length, valid_until(seen.sent, length)};
  return {life->lease.length, valid_until(life->lease.sent, life->lease.length)};
}

/// Revokes the leases of an entry that has ended: the lease that this store began, and the one that
/// the life is attached to. An `evicted` entry keeps them, because its life reports the eviction.
/// After that, a request that is still under way cannot attach the own life; if there may be one,
/// this waits for the revocation.
void CasStore::end_lives(const Asked& asked, std::int64_t attached, LifeEnd why,
                         const CallOptions& call_options) {
  const auto own = lives_.find(asked);
  const std::int64_t begun = own == lives_.end() ? 0 : own->second.lease.id;
  if (own != lives_.end()) lives_.erase(own);
  if (why == LifeEnd::evicted) return;
  const bool for_certain = why == LifeEnd::for_certain;
  if (for_certain && begun != 0) leases_->revoke({begun}, call_options);
  if (!for_certain && begun != 0) spare_.push_back(begun);
  if (attached != 0 && attached != begun) spare_.push_back(attached);
  revoke_spare(nullptr, call_options);
}

/// Revokes leases without lives, including the previous lease of `life`. This only saves resources:
/// the leases would expire later.
void CasStore::revoke_spare(OwnLife* life, const CallOptions& call_options) {
  if (life != nullptr && life->replaced != 0) {
    spare_.push_back(std::exchange(life->replaced, 0));
  }
  if (spare_.empty()) return;
  try {
    const Deadline end = later(BootClock::now(), courtesy);
    leases_->revoke(std::exchange(spare_, {}), {std::min(end, call_options.deadline), -1});
  } catch (const Error&) {
    return;
  }
}

/// Returns the lives whose end grants the claim or brings it nearer. A waiter for an exclusive lock
/// watches the waiter before it. The first waiter, and waiters for other locks, watch the holders,
/// too.
WatchedLives CasStore::lives_to_watch(const Claim& claim, const Snapshot& seen) const {
  OpenRecord record(claim.key, claim.token, seen, backend_->name());
  WatchedLives watched{lock_record(claim.key), life_name(claim.token), {}, seen.revision};
  const auto& queue = record.table.queue;
  const auto own = record.table.find_waiter(claim.token);
  if (own == queue.end()) return watched;
  const auto add = [&](const std::string& life, bool only_end) {
    const bool room = watched.others.size() < most_watched;
    if (room && seen.lives->contains(life)) watched.others.push_back({life, only_end});
  };
  const auto place = own - queue.begin();
  if (place > 0 && std::prev(own)->limit == exclusive) {
    add(life_name(std::prev(own)->token), true);
    return watched;
  }
  for (const HoldEntry& hold : record.table.holds) {
    if (!hold.counts() || hold.token == claim.token) continue;
    add(hold.flag == Flag::kept ? min_hold_life_name(hold.token) : life_name(hold.token), true);
  }
  for (auto other = own; other != own - std::min(place, watched_in_queue);) {
    --other;
    add(life_name(other->token), false);
  }
  return watched;
}

/// Sleeps in the queue and renews the own life during that time.
Wake CasStore::await_lives(const Claim& claim, Deadline until, int cancel_fd) {
  const auto own = lives_.find({claim.key, claim.token});
  if (own == lives_.end()) return Wake{Wake::Reason::due, {}};
  PlaceLease& lease = own->second.lease;
  const WatchedLives watched = lives_to_watch(claim, last_answer_);
  while (lease.id != 0) {
    const Deadline renewal = later(lease.sent, lease.length / renewals_of_a_life);
    const auto heard = leases_->next_event(watched, std::min(until, renewal), cancel_fd);
    if (const auto* message = std::get_if<std::string>(&heard)) {
      if (auto wake = wake_from(*message, claim)) return *wake;
      continue;
    }
    const auto why = std::get<Wake::Reason>(heard);
    if (why == Wake::Reason::interrupted) return Wake{why, {}};
    if (why == Wake::Reason::changed || BootClock::now() >= until) break;
    const auto longest = std::min(longest_renewal, lease.length / renewals_of_a_life);
    leases_->renew(lease, {later(BootClock::now(), longest), cancel_fd});
  }
  return Wake{Wake::Reason::due, {}};
}

/// The grant of a waiter after a hand-over lasts as long as the waiter's own life.
Wake CasStore::granted_by_life(const Claim& claim, Fence fence) const {
  Wake wake{Wake::Reason::granted, {}};
  const auto own = lives_.find({claim.key, claim.token});
  if (own == lives_.end()) return wake;
  const Lease lease = lease_from({}, milliseconds(0), &own->second);
  // If the message is older, another client may hold the lock; a renewal will tell.
  const bool is_fresh = lease.valid_until - BootClock::now() >= lease.length / renewals_of_a_life;
  if (is_fresh) wake.grant = Grant{fence, lease, false};
  return wake;
}

/// Sets the times of holds, for display, to what the engine reports of their leases.
void CasStore::date_by_leases(LockTable& table, const OpenRecord& record, const Snapshot& seen,
                              const CallOptions& call_options) const {
  std::vector<HoldEntry*> holds;
  std::vector<std::int64_t> leases;
  for (HoldEntry& hold : table.holds) {
    const bool kept = hold.flag == Flag::kept;
    const auto life =
        seen.lives->find(kept ? min_hold_life_name(hold.token) : life_name(hold.token));
    if (life == seen.lives->end()) continue;
    holds.push_back(&hold);
    leases.push_back(life->second);
  }
  if (leases.empty()) return;
  const auto left = leases_->left_of(leases, call_options);
  for (std::size_t i = 0; i < holds.size(); ++i) {
    // A lease that has expired since the record was read counts for a moment more, as it did then.
    holds[i]->lease = std::max(left[i].length, milliseconds(1));
    const auto passed = left[i].length - std::max(left[i].left, milliseconds(1));
    holds[i]->at = record.now.lease_clock - std::max(passed, milliseconds(0));
  }
}

}  // namespace dlock
