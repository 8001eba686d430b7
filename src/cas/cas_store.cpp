#include "cas/cas_store.hpp"

#include <algorithm>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/random.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"
#include "rule/lock_table.hpp"

namespace dlock {
namespace {

constexpr int releases_per_sweep = 16;
/// About the time of one write. N clients that want to write draw their pauses from N or 2 N turns,
/// so that about one at a time tries, whatever N is.
constexpr milliseconds turn{10};

/// The engine's clock now, estimated.
microseconds clock_since(const Snapshot& seen) {
  const auto passed = passed_since(seen.sent);
  return seen.clock + std::max(milliseconds(0), passed - drift_allowance(passed));
}

bool has_waiters(const Snapshot& seen) { return crowd_in(seen.text).waiters > 0; }

/// Only the write raises `sent`.
CallOptions of_a_read(const CallOptions& call_options) {
  return {call_options.deadline, call_options.cancel_fd};
}

constexpr std::string_view fence_begins = "dlock-fence 1 ";

[[noreturn]] void throw_overtaken(const std::string& place) {
  throw_unavailable(place + ": busy: other clients wrote this key first at every try", Cause::busy);
}

}  // namespace

CasStore::CasStore(std::unique_ptr<CasBackend> backend, std::string prefix)
    : backend_(std::move(backend)), leases_(backend_->leases()), prefix_(std::move(prefix)) {}

Snapshot CasStore::read(const std::string& name, const CallOptions& call_options) const {
  return backend_->read(name, nullptr, of_a_read(call_options));
}

OpenRecord CasStore::open(const LockKey& key, const Token& self, const Snapshot& seen) const {
  return {key, self, seen, backend_->name()};
}

Snapshot CasStore::change(const Change& how, const Try& attempt) {
  const std::string name = lock_record(how.key);
  const auto make = [&](const Snapshot& seen, bool unsure) -> std::optional<Update> {
    OpenRecord record = open(how.key, how.self, seen);
    bool must = attempt(record, unsure);
    Update update = record.update();
    record.check_room(update.text.size(), *backend_);
    begin_life(record, seen, how, update);
    must = must || (leases_ != nullptr && !update.begun.empty());
    if (!must && !record.changed()) return std::nullopt;
    if (!how.departs.empty() && !record.names(how.departs)) update.ended.push_back(how.departs);
    return update;
  };
  return rewrite(name, first_read(how, name), how.call_options, make, how.own, how.joins);
}

Snapshot CasStore::rewrite(const std::string& name, Snapshot seen, const CallOptions& call_options,
                           const Make& make, OwnLife* own, bool joins) {
  // The pauses are random, so that clients do not write at the same moment. Their range grows with
  // the number of holders, which confirm and release together. For a client that joins the queue,
  // waiters count, too, so that a crowd of waiters does not prevent the holder's renewals.
  constexpr milliseconds least{64}, longest{4096};
  const int confirm = crowd_in(seen.text).unconfirmed - 1;
  Backoff pauses(std::max(milliseconds(1), turn * confirm), longest);
  bool unsure = false, raced = confirm > 0;
  while (true) {
    const auto update = make(seen, unsure);
    if (!update) return seen;
    try {
      auto written = backend_->write(name, seen, *update, call_options);
      if (const auto* version = std::get_if<Version>(&written)) {
        seen.text = update->text;
        seen.version = *version;
        if (leases_ == nullptr) return seen;
        for (const std::string& life : update->ended) seen.lives->ids.erase(life);
        for (const auto& [life, lease] : update->begun) seen.lives->ids[life] = lease;
        return seen;
      }
      const bool raced_before = std::exchange(raced, true);
      seen = std::get<Snapshot>(std::move(written));
      const Crowd crowd = crowd_in(seen.text);
      const int writers = crowd.holders + (joins ? crowd.waiters : 0);
      pause(random_up_to(std::min(pauses.next(), std::max(least, 2 * turn * writers))),
            call_options);
      if (BootClock::now() >= call_options.deadline) throw_overtaken(backend_->name());
      // Others have hardly written during the first pause of a single writer. A removed record may
      // have been written and removed again, with a larger fence.
      if (raced_before || writers > 1 || seen.version == 0) seen = read(name, call_options);
    } catch (const Error& error) {
      const bool in_time = BootClock::now() < call_options.deadline;
      // The server answered an earlier request, so it is busy with other clients, not unreachable.
      if (raced && !in_time && error.kind() == ErrorKind::unavailable) {
        throw_overtaken(backend_->name());
      }
      const bool again = error.kind() == ErrorKind::unavailable && !unsure && in_time;
      if (!again) throw;
      unsure = true;
      seen = backend_->read(name, leases_ ? nullptr : own, of_a_read(call_options));
      continue;
    }
    if (BootClock::now() >= call_options.deadline) throw_overtaken(backend_->name());
  }
}

/// Pauses, because the sharers that waited with this client were granted the lock together with it,
/// and write now, too.
void CasStore::await_turn(const Claim& claim, const CallOptions& call_options) const {
  const Crowd crowd = crowd_in(last_answer_.text);
  if (claim.limit.owners == 1 || crowd.sharers < 2) return;
  pause(random_up_to(turn * crowd.sharers), call_options);
  if (BootClock::now() >= call_options.deadline) throw_overtaken(backend_->name());
}

Answer CasStore::acquire(const Claim& claim, const Ask& ask, const CallOptions& call_options) {
  Answer answer;
  const Asked asked{claim.key, claim.token};
  OwnEntry& own = entries_[asked];
  own.unanswered = true;
  own.waits = ask.wait;
  if (own.lease.id == 0) own.lease.asked = claim.ttl;
  const Change how{claim.key, claim.token, call_options, &own, {}, {}, true};
  const Snapshot seen = change(how, [&](OpenRecord& record, bool) {
    HolderIdentity backing;
    backing.mailbox = own.address;
    Claim longer = claim;
    longer.ttl += record.clock_unsure();
    if (claim.floor > milliseconds(0)) longer.floor += record.clock_unsure();
    const auto outcome = record.table.acquire(longer, ask, backing, record.now, record);
    const auto* granted = std::get_if<Granted>(&outcome);
    if (granted != nullptr) {
      Grant grant{granted->fence, Lease{granted->lease, {}}};
      grant.predecessor = record.table.predecessor(record.now);
      answer = grant;
    } else {
      const auto& refused = std::get<Refused>(outcome);
      Refusal refusal = refusal_from(refused, holders_from(refused.holds, record.now));
      // Waiters near the head need not ask often: an open connection loses no messages, and a
      // waiter without messages polls the record.
      refusal.longest_sleep_near_head = milliseconds::max();
      refusal.longest_sleep = backend_->longest_sleep();
      answer = std::move(refusal);
    }
    // A grant needs a write of its own: an earlier write of the same token may have been undone.
    return granted != nullptr;
  });
  own.unanswered = false;
  own.waits = std::holds_alternative<Refusal>(answer);
  if (auto* grant = std::get_if<Grant>(&answer)) {
    grant->lease = lease_from(seen, grant->lease.length, own);
    own_[claim.key] = seen;
  } else {
    last_answer_ = seen;
  }
  revoke_spare(&own, call_options);
  if (!own.waits) return answer;
  const auto why = std::get<Refusal>(answer).why;
  const auto end = why == Refusal::Reason::gone ? LifeEnd::evicted : LifeEnd::gone;
  if (!ask.wait || why != Refusal::Reason::held) end_life(asked, 0, end, call_options);
  return answer;
}

Renewed CasStore::renew(const Claim& claim, const RenewalOptions& terms,
                        const CallOptions& call_options) {
  await_turn(claim, call_options);
  const Asked asked{claim.key, claim.token};
  OwnEntry& own = entries_[asked];
  own.waits = false;
  Renewed renewed;
  std::int64_t attached = 0;
  bool held_before = false;
  const auto renew_in = [&](OpenRecord& record, bool) {
    renewed = {};
    attached = record.lease_of(claim.token);
    held_before = record.held_before(claim.token);
    auto ttl = terms.ttl;
    if (ttl) *ttl += record.clock_unsure();
    const auto lease = record.table.renew(claim.token, ttl, record.now, record);
    HoldEntry* hold = record.table.find_hold(claim.token);
    if (!lease || hold == nullptr) {
      renewed = {std::nullopt, record.table.evicted_by(claim.token)};
      return false;
    }
    if (claim.who.command_pid != 0) hold->backing.command.pid = claim.who.command_pid;
    hold->backing.mailbox = own.address;
    renewed = {Grant{hold->fence, Lease{*lease, {}}, true, hold->limit}, {}, hold->stop_asked_by};
    if (!held_before) renewed.grant->predecessor = record.table.predecessor(record.now);
    // With CasLeases the engine renews the lease, so no write is needed.
    return leases_ == nullptr;
  };
  std::optional<Snapshot> seen;
  try {
    seen = change({claim.key, claim.token, call_options, &own, dated_anew(claim.key)}, renew_in);
  } catch (const Error& error) {
    // The read has renewed the lease of the hold, too. If only the write failed, because the engine
    // is full or clients that join the queue wrote first each time, the hold is renewed.
    const bool is_renewed = own.lease.id != 0 && held_before && attached == own.lease.id;
    const bool is_of_the_write =
        error.cause() == Cause::out_of_memory || error.cause() == Cause::busy;
    if (!is_renewed || !is_of_the_write) throw;
  }
  last_answer_ = {};
  revoke_spare(&own, call_options);
  const bool has_expired = leases_ != nullptr && own.lease.id == 0;
  if (!renewed.grant || has_expired) {
    const auto end = renewed.evicted_by ? LifeEnd::evicted : LifeEnd::gone;
    end_life(asked, 0, end, call_options);
    return {std::nullopt, renewed.evicted_by};
  }
  Lease& lease = renewed.grant->lease;
  lease = lease_from(seen.value_or(Snapshot{}), lease.length, own);
  if (seen) own_[claim.key] = *seen;
  return renewed;
}

void CasStore::suspend(Suspension why) {
  const bool awaited = std::any_of(own_.begin(), own_.end(),
                                   [](const auto& own) { return has_waiters(own.second); });
  if (why == Suspension::rest && backend_->stays_connected(awaited)) return;
  backend_->close();
}

std::optional<Snapshot> CasStore::last_written(const Claim& claim, ReleaseMode mode) const {
  const auto known = own_.find(claim.key);
  if (known == own_.end()) return std::nullopt;
  Snapshot over = known->second;
  // Without CasLeases only a read shows which waiters are still alive. With them, the write of a
  // message to a waiter fails if the waiter's life has ended.
  if (has_waiters(over) && !leases_) return std::nullopt;
  // The engine read its clock some time after `sent`, much later if the server stood still. So the
  // estimate may be ahead of the engine's clock, and another holder's lease or this client's
  // --min-hold would seem to be over.
  if (crowd_in(over.text).holders > 1) return std::nullopt;
  const bool min_hold_counts = claim.floor > milliseconds(0) && mode != ReleaseMode::ignore_floor;
  if (min_hold_counts && !leases_) return std::nullopt;
  over.clock = clock_since(over);
  return over;
}

/// The record as this store last wrote it, for a renewal without a read. The clock is that of the
/// engine's last answer, as if that had been sent at once, so the new lease ends rather late than
/// early. Only a read may judge the leases of other holders.
std::optional<Snapshot> CasStore::dated_anew(const LockKey& key) const {
  const auto clock = backend_->last_clock();
  const auto known = own_.find(key);
  if (!clock || known == own_.end() || crowd_in(known->second.text).holders > 1) {
    return std::nullopt;
  }
  Snapshot over = known->second;
  over.sent = BootClock::now();
  over.clock = clock->clock + passed_since(clock->sent);
  return over;
}

ReleaseResult CasStore::release(const Claim& claim, const ReleaseOptions& options,
                                const CallOptions& call_options) {
  const Asked asked{claim.key, claim.token};
  const OwnEntry& own = entries_[asked];
  const bool may_come_after = own.unanswered;
  await_turn(claim, call_options);
  ReleaseResult result;
  const Change how{
      claim.key,           claim.token, call_options, nullptr, last_written(claim, options.mode),
      life_in(own.address)};
  own_.erase(claim.key);
  std::int64_t lease = 0;
  bool by_life = false;
  change(how, [&](OpenRecord& record, bool unsure) {
    lease = record.lease_of(claim.token);
    by_life = !may_come_after && lease != 0 && record.ends_by_life(claim.token);
    if (by_life) return false;
    const auto outcome = record.table.release(claim.token, options, record.now, record);
    const bool found = outcome != Released::not_held;
    if (!found) result.evicted_by = record.table.evicted_by(claim.token);
    if (found || !unsure || result.evicted_by) result.outcome = outcome;
    return found || may_come_after;
  });
  if (by_life) {
    leases_->revoke({std::exchange(lease, 0)}, call_options);
    entries_.erase(asked);
    result.outcome = Released::yes;
  }
  const auto end = result.evicted_by ? LifeEnd::evicted
                   : may_come_after  ? LifeEnd::for_certain
                                     : LifeEnd::gone;
  end_life(asked, lease, end, call_options);
  if (result.outcome == Released::yes && once_in(releases_per_sweep)) {
    sweep(lock_record({}), lock_record(claim.key), call_options);
  }
  return result;
}

/// Sweeping only saves resources: a failure does not change the answer.
void CasStore::sweep(const std::string& prefix, const std::string& after,
                     const CallOptions& call_options) {
  try {
    backend_->sweep(prefix, after, call_options);
  } catch (const Error&) {
    backend_->close();
  }
}

std::vector<Holder> CasStore::evict(const LockKey& key, const Eviction& how,
                                    const CallOptions& call_options) {
  std::vector<Holder> evicted;
  std::vector<HoldEntry> meant;
  const auto evict_from = [&](OpenRecord& record, std::optional<Fence> which) {
    return record.table.evict({which, how.by, how.asks}, record.now, record);
  };
  change({key, Token{}, call_options}, [&](OpenRecord& record, bool unsure) {
    if (!unsure) {
      meant = evict_from(record, how.fence);
      evicted = holders_from(meant, record.now);
      return !meant.empty();
    }
    // The earlier write may have been done, and the key may have another holder by now.
    bool any = false;
    for (const HoldEntry& hold : meant) any = !evict_from(record, hold.fence).empty() || any;
    return any;
  });
  own_.erase(key);
  return evicted;
}

Fence CasStore::record_max(const LockKey& resource, Fence fence, const CallOptions& call_options) {
  const std::string name = prefix_ + "seal:" + resource.text;
  Fence largest = fence;
  const auto make = [&](const Snapshot& seen, bool) -> std::optional<Update> {
    largest = fence;
    std::string_view text = seen.text;
    if (!text.empty()) {
      const bool ours = text.starts_with(fence_begins) && text.ends_with('\n');
      if (ours) text.remove_prefix(fence_begins.size());
      const auto before =
          ours ? parse_number(take_until(text, '\n'), 0, largest_fence) : std::nullopt;
      if (!before) {
        throw Error(ErrorKind::wrong_data,
                    backend_->name() + ": the record of " + escaped(resource.text) +
                        " holds something else than the fence of a guard: it is left as it is");
      }
      largest = std::max(fence, Fence{*before});
      if (largest.value == *before) return std::nullopt;
    }
    return Update{std::string(fence_begins) + std::to_string(fence.value) + "\n",
                  microseconds::max()};
  };
  rewrite(name, read(name, call_options), call_options, make);
  return largest;
}

}  // namespace dlock
