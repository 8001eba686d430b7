#include <algorithm>
#include <iterator>
#include <utility>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"
#include "cas/cas_store.hpp"

// How other clients see that this client is alive, and how it waits for the end of other lives.

namespace dlock {
namespace {

/// Others notice a dead waiter after this time at the latest, however long the ttl of its claim.
constexpr milliseconds longest_lease_of_a_waiter{30'000};
constexpr int renewals_of_a_life = 3;
constexpr milliseconds longest_renewal{5000};
/// How long a client waits for the revocation of unused leases.
constexpr milliseconds courtesy{20};
/// A lease that another client asked for may be this much longer than asked for.
constexpr milliseconds granted_more{3000};

/// A waiter for a shared lock or a semaphore watches this many of the waiters before it.
constexpr std::ptrdiff_t watched_in_queue = 8;
constexpr std::size_t most_watched = 64;

constexpr milliseconds first_pause_of_poll{20};
/// The first few waiters in the queue poll often, the others rarely.
constexpr std::ptrdiff_t few = 4;
constexpr milliseconds longest_pause_of_few{500};
constexpr milliseconds pause_of_others{2000};
/// The pause is the time waited so far, divided by this.
constexpr int part_of_wait = 20;
/// A read may last this long beyond the end of the sleep: a silent server must not prolong a wait.
constexpr milliseconds time_for_last_look{200};
constexpr milliseconds longest_look{5000};
/// The first two waiters read the record after this time even if they watch another life, because
/// that life may last: an evicted holder may not know of its eviction yet, and a waiter may never
/// confirm its grant. Half of the short lease of a hand-over must be left at the read.
constexpr milliseconds longest_watch_of_first{2500};
constexpr int part_of_ttl = 3;

bool suits(const EngineLease& lease, milliseconds wanted) {
  if (lease.id == 0) return false;
  if (lease.asked != milliseconds(0)) return lease.asked == wanted;
  return lease.length >= wanted && lease.length <= wanted + granted_more;
}

/// Returns the grant of a waiter after a hand-over, read from the record; nothing if half of its
/// short lease is over.
std::optional<Grant> seen_grant(const HoldEntry& hold, const Snapshot& seen) {
  const auto left = std::chrono::floor<milliseconds>(left_of(hold, seen.clock));
  const Deadline until = valid_until(seen.sent, left - seen.clock_unsure);
  const auto lease = hold.lease - seen.clock_unsure;
  if (until - BootClock::now() < lease / 2) return std::nullopt;
  return Grant{hold.fence, Lease{lease, until}, false};
}

}  // namespace

CasStore::~CasStore() {
  for (const auto& [asked, own] : entries_) {
    if (own.waits && own.lease.id != 0) spare_.push_back(own.lease.id);
  }
  revoke_spare(nullptr, {later(BootClock::now(), courtesy), -1});
}

/// Returns the record that the change starts from. If another store renews the same hold and has
/// attached the hold's life to another lease, this store renews that lease.
Snapshot CasStore::first_read(const Change& how, const std::string& name) {
  constexpr int most_leases = 4;
  if (how.over) return *how.over;
  const CallOptions call_options{how.call_options.deadline, how.call_options.cancel_fd};
  for (int tries = 1;; ++tries) {
    const std::int64_t before = how.own == nullptr ? 0 : how.own->lease.id;
    Snapshot seen = backend_->read(name, how.own, call_options);
    if (leases_ == nullptr || how.own == nullptr || how.own->lease.id != 0) return seen;
    const auto life = seen.lives->ids.find(life_name(how.self));
    if (life == seen.lives->ids.end()) return seen;
    if (life->second == before || tries == most_leases) {
      // The life's lease has expired, but the engine may have read the record before that.
      seen.lives->ids.erase(life);
      return seen;
    }
    how.own->lease = EngineLease{life->second};
  }
}

void CasStore::begin_life(OpenRecord& record, const Snapshot& seen, const Change& how,
                          Update& update) {
  if (leases_ != nullptr) {
    if (how.own != nullptr) keep_lease(record, seen, how, update);
    begin_min_hold(record, seen, how, update);
  } else if (how.own != nullptr && !how.own->address.empty()) {
    const std::string life = life_in(how.own->address);
    if (record.names(life)) update.begun[life] = 0;
  }
}

/// Replaces a lease of the wrong length by `granted`. If both are equally long, the old one stays,
/// because the engine may have a minimum length.
void CasStore::take_lease(OwnEntry& own, const EngineLease& granted) {
  if (own.lease.id != 0 && own.lease.length == granted.length) {
    own.lease.asked = granted.asked;
    spare_.push_back(granted.id);
    return;
  }
  if (own.lease.id != 0) own.replaced = own.lease.id;
  own.lease = granted;
}

/// Attaches the client's entry, if the change has not removed it, to a lease of the right length.
void CasStore::keep_lease(OpenRecord& record, const Snapshot& seen, const Change& how,
                          Update& update) {
  OwnEntry& own = *how.own;
  const HoldEntry* hold = record.table.find_hold(how.self);
  const auto waiter = record.table.find_waiter(how.self);
  const bool waits = waiter != record.table.queue.end();
  const bool holds = hold != nullptr && hold->inside();
  if (!holds && !waits) return;
  // A waiter's min-hold lease is left over from a write that lost the race, and nobody renews it.
  if (waits && own.min_hold.id != 0) spare_.push_back(std::exchange(own.min_hold.id, 0));
  auto wanted = waits ? std::min(waiter->ttl, longest_lease_of_a_waiter) : hold->ttl;
  if (!waits && hold->flag == Flag::held) wanted = hold->lease;
  if (!suits(own.lease, wanted)) take_lease(own, leases_->grant(wanted, how.call_options));
  const std::string name = life_name(how.self);
  const auto there = seen.lives->ids.find(name);
  if (there == seen.lives->ids.end() || there->second != own.lease.id) {
    update.begun[name] = own.lease.id;
  }
  std::erase_if(update.wakeups,
                [&](const Wakeup& wakeup) { return update.begun.contains(wakeup.to); });
}

/// Begins the min-hold of the client's hold when the hold is first confirmed, or at an earlier
/// release.
void CasStore::begin_min_hold(OpenRecord& record, const Snapshot& seen, const Change& how,
                              Update& update) {
  const HoldEntry* hold = record.table.find_hold(how.self);
  const std::string name = min_hold_life_name(how.self);
  const bool begins = hold != nullptr && hold->counts() && !record.held_before(how.self) &&
                      !seen.lives->contains(name);
  if (!begins || hold->min_hold <= milliseconds(0)) return;
  EngineLease& min_hold = entries_[{how.key, how.self}].min_hold;
  if (min_hold.id == 0) min_hold = leases_->grant(hold->min_hold, how.call_options);
  update.begun[name] = min_hold.id;
}

Lease CasStore::lease_from(const Snapshot& seen, milliseconds length, const OwnLife& own) const {
  const auto counted = length - seen.clock_unsure;
  if (leases_ == nullptr) return {counted, valid_until(seen.sent, counted)};
  return {own.lease.length, valid_until(own.lease.sent, own.lease.length)};
}

/// Forgets an entry that has ended, and revokes its leases: the one that this store began, and the
/// one that the life is attached to. An `evicted` entry keeps them, because its life reports the
/// eviction. A request that is still under way cannot attach a life to a revoked lease; if such a
/// request is possible (`for_certain`), this function waits for the revocation.
void CasStore::end_life(const Asked& asked, std::int64_t attached, LifeEnd why,
                        const CallOptions& call_options) {
  const auto own = entries_.find(asked);
  const std::int64_t begun = own == entries_.end() ? 0 : own->second.lease.id;
  if (own != entries_.end()) entries_.erase(own);
  if (why == LifeEnd::evicted) return;
  const bool for_certain = why == LifeEnd::for_certain;
  if (for_certain && begun != 0) leases_->revoke({begun}, call_options);
  if (!for_certain && begun != 0) spare_.push_back(begun);
  if (attached != 0 && attached != begun) spare_.push_back(attached);
  revoke_spare(nullptr, call_options);
}

/// Revokes leases without lives, including the previous lease of `own`. This only saves resources:
/// the leases would expire later.
void CasStore::revoke_spare(OwnEntry* own, const CallOptions& call_options) {
  if (own != nullptr && own->replaced != 0) spare_.push_back(std::exchange(own->replaced, 0));
  if (spare_.empty()) return;
  try {
    const Deadline end = later(BootClock::now(), courtesy);
    leases_->revoke(std::exchange(spare_, {}), {std::min(end, call_options.deadline), -1});
  } catch (const Error&) {
    return;
  }
}

/// Sleeps in the queue until a message, the end of another life, or a look at the record says that
/// it is time to ask again. Renews the client's lease meanwhile.
Wake CasStore::sleep(const Claim& claim, Deadline until, int cancel_fd) {
  const auto own = entries_.find({claim.key, claim.token});
  if (own == entries_.end()) return {};
  EngineLease& lease = own->second.lease;
  while (true) {
    RecordWatch watch = watch_for(claim, until);
    const auto renewals = lease.length / renewals_of_a_life;
    const Deadline renewal = leases_ == nullptr ? never : later(lease.sent, renewals);
    const auto heard = backend_->watch(watch, std::min(until, renewal), cancel_fd);
    last_answer_.revision = watch.after;
    if (const auto* message = std::get_if<std::string>(&heard)) {
      if (auto wake = wake_from(*message, claim)) return *wake;
      if (const auto why = end_of_sleep(until, cancel_fd)) return Wake{*why, {}};
      continue;
    }
    const auto why = std::get<Wake::Reason>(heard);
    if (why == Wake::Reason::interrupted) return Wake{why, {}};
    if (BootClock::now() >= until) return Wake{Wake::Reason::due, {}};
    if (leases_ == nullptr) {
      if (auto wake = look(claim, until, cancel_fd)) return *wake;
      continue;
    }
    if (why == Wake::Reason::changed) return Wake{Wake::Reason::due, {}};
    leases_->renew(lease,
                   {later(BootClock::now(), std::min(longest_renewal, renewals)), cancel_fd});
    if (lease.id == 0) return Wake{Wake::Reason::due, {}};
  }
}

/// Returns the lives whose end grants the claim or brings its grant nearer. If the previous waiter
/// asks for the exclusive lock, the client of the claim watches only that waiter. Otherwise the
/// client watches the holders and some of the waiters that precede it.
RecordWatch CasStore::watch_for(const Claim& claim, Deadline until) const {
  const Snapshot& seen = last_answer_;
  OpenRecord record = open(claim.key, claim.token, seen);
  RecordWatch watch{lock_record(claim.key), {}, {}, seen.revision, until};
  const auto& queue = record.table.queue;
  const auto own = record.table.find_waiter(claim.token);
  if (own == queue.end()) return watch;
  watch.own = leases_ != nullptr ? life_name(own->token) : own->backing.mailbox;
  const auto place = own - queue.begin();
  const auto waited =
      std::chrono::floor<milliseconds>(seen.clock - microseconds(own->ticket.value));
  const auto pause =
      place < few ? std::clamp(waited / part_of_wait, first_pause_of_poll, longest_pause_of_few)
                  : pause_of_others;
  watch.poll = later(BootClock::now(), pause);
  constexpr std::ptrdiff_t first_two = 2;
  if (place < first_two) {
    const auto ttl = place == 0 ? claim.ttl : std::min(claim.ttl, std::prev(own)->ttl);
    watch.look = later(BootClock::now(),
                       std::clamp(ttl / part_of_ttl, longest_pause_of_few, longest_watch_of_first));
  }
  const auto add = [&](const std::string& life, bool only_end) {
    const bool room = watch.others.size() < most_watched;
    if (room && !life.empty()) watch.others.push_back({life, only_end});
  };
  if (place > 0 && std::prev(own)->limit == exclusive) {
    add(record.to_watch(*std::prev(own)), true);
    return watch;
  }
  for (const HoldEntry& hold : record.table.holds) {
    if (hold.counts() && hold.token != claim.token) add(record.to_watch(hold), true);
  }
  for (auto other = own; other != own - std::min(place, watched_in_queue);) {
    --other;
    add(record.to_watch(*other), false);
  }
  return watch;
}

/// Reads the record for a client without messages. Returns the wake-up if the record shows that the
/// waiter must wake before `until`.
std::optional<Wake> CasStore::look(const Claim& claim, Deadline until, int cancel_fd) {
  const Deadline longest = later(BootClock::now(), longest_look);
  const CallOptions in_time{std::min(longest, later(until, time_for_last_look)), cancel_fd};
  const std::string name = lock_record(claim.key);
  try {
    last_answer_ = backend_->look(name, in_time);
    const auto holds = [&] {
      return open(claim.key, claim.token, last_answer_).table.find_hold(claim.token) != nullptr;
    };
    const bool lacks_lives = backend_->looks_without_lives() && !last_answer_.lives;
    if (lacks_lives && !holds()) last_answer_ = read(name, in_time);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::unavailable || BootClock::now() < until) throw;
    return Wake{Wake::Reason::due, {}};
  }
  const Snapshot& seen = last_answer_;
  OpenRecord record = open(claim.key, claim.token, seen);
  const HoldEntry* own = record.table.find_hold(claim.token);
  if (own != nullptr && own->inside()) {
    if (backend_->last_clock()) own_[claim.key] = seen;
    return Wake{Wake::Reason::granted, {}, seen_grant(*own, seen)};
  }
  const bool waits = record.table.find_waiter(claim.token) != record.table.queue.end();
  std::optional<Deadline> ends;
  for (const HoldEntry& hold : record.table.live_holds(record.now)) {
    const Deadline end = later(seen.sent, left_of(hold, seen.clock) + milliseconds(1));
    ends = std::min(ends.value_or(end), end);
  }
  // No hold blocks, or the blocking holds have expired: the next request decides by the rule.
  if (!waits || !ends || *ends <= BootClock::now()) return Wake{Wake::Reason::due, {}};
  if (later(*ends, first_pause_of_poll) < until) return Wake{Wake::Reason::changed, *ends};
  return std::nullopt;
}

/// Returns the wake-up that a message means for this claim; nothing if it was for an earlier claim.
std::optional<Wake> CasStore::wake_from(std::string_view message, const Claim& claim) const {
  const auto kind = take_until(message, ' ');
  if (take_until(message, ' ') != short_name(claim.token.text)) return std::nullopt;
  const auto number = [&](std::int64_t most) {
    return parse_number(take_until(message, ' '), 0, most);
  };
  if (kind == "next") {
    const auto in = number(longest_span.count());
    if (!in || !message.empty()) return std::nullopt;
    return Wake{Wake::Reason::changed, later(BootClock::now(), milliseconds(*in))};
  }
  if (kind != "grant") return std::nullopt;
  const auto now = number(latest_time.count());
  const auto lease = number(longest_span.count());
  const auto fence = number(INT64_MAX);
  if (!now || !lease || !fence || !message.empty()) return std::nullopt;
  if (leases_) return granted_by_life(claim, Fence{*fence});
  const HandOver told{microseconds(*now), milliseconds(*lease), Fence{*fence}};
  const DatedAnswer answer{last_answer_.sent, last_answer_.clock};
  return Wake{Wake::Reason::granted, {}, handed_over_grant(answer, told, told.lease / 2)};
}

/// The grant of a waiter after a hand-over lasts as long as the waiter's own life.
Wake CasStore::granted_by_life(const Claim& claim, Fence fence) const {
  Wake wake{Wake::Reason::granted, {}};
  const auto own = entries_.find({claim.key, claim.token});
  if (own == entries_.end()) return wake;
  const Lease lease = lease_from({}, milliseconds(0), own->second);
  // If the message is old, another client may hold the lock by now; only a renewal can tell.
  const bool is_fresh = lease.valid_until - BootClock::now() >= lease.length / renewals_of_a_life;
  if (is_fresh) wake.grant = Grant{fence, lease, false};
  return wake;
}

}  // namespace dlock
