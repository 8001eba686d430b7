#include "cas/cas_store.hpp"

#include <algorithm>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/random.hpp"
#include "base/text.hpp"
#include "rule/lock_table.hpp"

namespace dlock {
namespace {

constexpr int releases_per_sweep = 16;

std::string new_channel() {
  constexpr std::size_t bytes = 8;
  return "dlock_" + random_hex(bytes);
}

/// The engine's clock now, estimated.
microseconds clock_since(const Snapshot& seen) {
  const auto passed = passed_since(seen.sent);
  return seen.clock + std::max(milliseconds(0), passed - drift_allowance(passed));
}

bool has_waiters(const Snapshot& seen) { return crowd_in(seen.text).waiters > 0; }

}  // namespace

CasStore::CasStore(std::unique_ptr<CasBackend> backend, std::string prefix)
    : backend_(std::move(backend)),
      leases_(backend_->leases()),
      prefix_(std::move(prefix)),
      channel_(new_channel()) {}

/// Refuses a client that is new to a record which is nearly full. Renewals and hand-overs make the
/// record longer, too, and a holder must not lose its lease because others wait. Waiters have half
/// of the room: a grant to all of them writes a message for each. New holders have three quarters,
/// so that a holder enters again while the queue is full.
void CasStore::check_room(const OpenRecord& record, const LockKey& key, std::size_t bytes) const {
  const std::size_t quarter = backend_->largest_record() / 4;
  const auto added = record.added();
  const std::size_t room = (added == OpenRecord::Added::waiter ? 2 : 3) * quarter;
  if (added == OpenRecord::Added::nothing || bytes <= room) return;
  throw_unavailable(backend_->name() + ": too many clients hold " + escaped(key.text) +
                        " or wait for it (" + std::to_string(bytes) + " of " +
                        std::to_string(room) + " bytes): try again later",
                    Cause::other_reply);
}

Snapshot CasStore::change(const Change& how, const Try& attempt) {
  const std::string name = lock_record(how.key);
  const auto make = [&](const Snapshot& read, bool unsure) -> std::optional<Update> {
    OpenRecord record(how.key, how.self, read, backend_->name());
    bool must = attempt(record, unsure);
    Update update = record.update();
    check_room(record, how.key, update.text.size());
    if (how.life != nullptr) keep_life(record, read, how, update);
    if (leases_ != nullptr) begin_min_hold(record, read, how, update);
    must = must || !update.begun_lives.empty();
    if (!must && !record.changed()) return std::nullopt;
    update.names_connection = how.names_connection;
    update.departs = how.departs;
    // A waiter that only now begins to watch this client must find that it has departed, even if
    // the client queues again.
    if (update.departs && backend_->has_departures()) channel_ = new_channel();
    return update;
  };
  Change reading = how;
  reading.call_options = of_a_read(how.call_options);
  return rewrite(name, how.channel, first_read(reading, name), how.call_options, make, how.joins);
}

Answer CasStore::acquire(const Claim& claim, const Ask& ask, const CallOptions& call_options) {
  Answer answer;
  const Asked asked{claim.key, claim.token};
  unanswered_.insert(asked);
  OwnLife* const life = leases_ ? &lives_[asked] : nullptr;
  if (life && life->lease.id == 0) life->lease.asked = claim.ttl;
  const bool names_connection = (ask.wait || backend_->keeps_holds()) && !leases_;
  const Change how{claim.key,
                   claim.token,
                   ask.wait && !leases_ ? channel_ : "",
                   {},
                   false,
                   life,
                   names_connection,
                   call_options,
                   true};
  const Snapshot seen = change(how, [&](OpenRecord& record, bool) {
    HolderIdentity backing;
    if (names_connection) backing.mailbox = wake_address(channel_, backend_->connection_id());
    const auto outcome = record.table.acquire(claim, ask, backing, record.now, record);
    record.finish(outcome.more);
    const auto* granted = std::get_if<Granted>(&outcome.answer);
    if (granted != nullptr) {
      answer = Grant{granted->fence, Lease{granted->lease, {}}};
    } else {
      const auto& refused = std::get<Refused>(outcome.answer);
      Refusal refusal = refusal_from(refused, holders_from(refused.holds, record.now));
      // A connection loses no messages while it is open, and polling reads the record itself.
      refusal.longest_sleep_near_head = milliseconds::max();
      answer = std::move(refusal);
    }
    // A grant needs a write of its own: an earlier write of the same token may have been undone.
    return granted != nullptr;
  });
  unanswered_.erase(asked);
  if (life) life->waits = std::holds_alternative<Refusal>(answer);
  if (auto* grant = std::get_if<Grant>(&answer)) {
    grant->lease = lease_from(seen, grant->lease.length, life);
    own_[claim.key] = seen;
  } else {
    last_answer_ = seen;
    const auto why = std::get<Refusal>(answer).why;
    const bool waits = ask.wait && why == Refusal::Reason::held;
    const auto end = why == Refusal::Reason::gone ? LifeEnd::evicted : LifeEnd::gone;
    if (life && !waits) end_lives(asked, 0, end, call_options);
  }
  revoke_spare(life && lives_.contains(asked) ? life : nullptr, call_options);
  return answer;
}

Renewed CasStore::renew(const Claim& claim, const RenewalOptions& terms,
                        const CallOptions& call_options) {
  await_turn(claim, call_options);
  const LockKey& key = claim.key;
  const Token& token = claim.token;
  Renewed renewed;
  OwnLife* const life = leases_ ? &lives_[{key, token}] : nullptr;
  auto over = read_for_waiters(key, call_options);
  if (life && life->lease.id == 0) over = adopt_lease(key, token, *life, call_options);
  const bool lives = life && life->lease.id != 0;
  const Change how{key,
                   token,
                   {},
                   std::move(over),
                   false,
                   lives ? life : nullptr,
                   backend_->keeps_holds(),
                   call_options};
  std::int64_t attached = 0;
  bool held_before = false;
  const auto renew_in = [&](OpenRecord& record, bool) {
    renewed = {};
    attached = record.lease_of(token);
    held_before = record.held_before(token);
    const auto outcome = record.table.renew(token, terms.ttl, record.now, record);
    record.finish(outcome.more);
    HoldEntry* own = record.table.find_hold(token);
    if (!outcome.answer || own == nullptr) {
      renewed = {std::nullopt, record.table.evicted_by(token)};
      return false;
    }
    if (claim.who.command_pid != 0) own->backing.command.pid = claim.who.command_pid;
    if (backend_->has_departures() || backend_->keeps_holds()) {
      own->backing.mailbox = wake_address(channel_, backend_->connection_id());
    }
    renewed = {Grant{own->fence, Lease{*outcome.answer, {}}, true, own->limit}};
    // With CasLeases the engine renews the lease, so no write is needed.
    return leases_ == nullptr;
  };
  std::optional<Snapshot> seen;
  try {
    seen = change(how, renew_in);
  } catch (const Error& error) {
    // The lease of the hold was renewed together with the read. Only the write failed, because the
    // engine is full, or because each write of a crowd that joins came first.
    const bool is_renewed = lives && held_before && attached == life->lease.id;
    const bool is_of_the_write =
        error.cause() == Cause::out_of_memory || error.cause() == Cause::busy;
    if (!is_renewed || !is_of_the_write) throw;
  }
  last_answer_ = {};
  revoke_spare(life, call_options);
  if (!renewed.grant || lives != (leases_ != nullptr)) {
    const auto end = renewed.evicted_by ? LifeEnd::evicted : LifeEnd::gone;
    if (life) end_lives({key, token}, 0, end, call_options);
    return {std::nullopt, renewed.evicted_by};
  }
  if (life) life->waits = false;
  Lease& lease = renewed.grant->lease;
  lease = lease_from(seen.value_or(Snapshot{}), lease.length, life);
  if (seen) own_[key] = *seen;
  return renewed;
}

void CasStore::suspend(Suspension why) {
  if (why == Suspension::rest && (leases_ || backend_->keeps_holds())) return;
  const bool awaited = std::any_of(own_.begin(), own_.end(),
                                   [](const auto& own) { return has_waiters(own.second); });
  const bool stays = awaited && backend_->has_departures() && !backend_->is_crowded();
  if (why == Suspension::rest && stays) return;
  backend_->close();
}

/// If waiters watch for this holder's departure: reads the record on a connection that they can
/// watch.
std::optional<Snapshot> CasStore::read_for_waiters(const LockKey& key,
                                                   const CallOptions& call_options) {
  if (!backend_->has_departures()) return std::nullopt;
  Snapshot seen = backend_->read(lock_record(key), "", call_options);
  if (!has_waiters(seen) || !backend_->connection_id().empty()) return seen;
  return backend_->read(lock_record(key), channel_, call_options);
}

std::optional<Snapshot> CasStore::last_written(const Claim& claim, ReleaseMode mode) const {
  const auto known = own_.find(claim.key);
  if (known == own_.end()) return std::nullopt;
  Snapshot over = known->second;
  // Only a read, or a write to a life that has ended, shows whether the waiters still live.
  if (has_waiters(over) && !leases_) return std::nullopt;
  // The clock was read later than `sent`, by a round trip or by a server that stood still: it may
  // seem to be later than it is, and another's lease over, or the own --min-hold.
  if (crowd_in(over.text).holders > 1) return std::nullopt;
  const bool floor_counts = claim.floor > milliseconds(0) && mode != ReleaseMode::ignore_floor;
  if (floor_counts && !leases_) return std::nullopt;
  over.clock = clock_since(over);
  return over;
}

ReleaseResult CasStore::release(const Claim& claim, const ReleaseOptions& options,
                                const CallOptions& call_options) {
  const Asked asked{claim.key, claim.token};
  const bool may_come_after = unanswered_.contains(asked);
  await_turn(claim, call_options);
  ReleaseResult result;
  const Change how{claim.key, claim.token, {},    last_written(claim, options.mode),
                   true,      nullptr,     false, call_options};
  own_.erase(claim.key);
  std::int64_t lease = 0;
  bool by_life = false;
  change(how, [&](OpenRecord& record, bool unsure) {
    lease = record.lease_of(claim.token);
    by_life = !may_come_after && lease != 0 && record.ends_by_life(claim.token);
    if (by_life) return false;
    const auto outcome = record.table.release(claim.token, options.mode, record.now, record);
    record.finish(outcome.more);
    const bool found = outcome.answer != Released::not_held;
    if (!found) result.evicted_by = record.table.evicted_by(claim.token);
    if (found || !unsure || result.evicted_by) result.outcome = outcome.answer;
    return found || may_come_after;
  });
  if (by_life) {
    leases_->revoke({std::exchange(lease, 0)}, call_options);
    lives_.erase(asked);
    result.outcome = Released::yes;
  }
  const auto end = result.evicted_by ? LifeEnd::evicted
                   : may_come_after  ? LifeEnd::for_certain
                                     : LifeEnd::gone;
  if (leases_) end_lives(asked, lease, end, call_options);
  unanswered_.erase(asked);
  if (result.outcome == Released::yes) sweep_sometimes(claim.key, call_options);
  return result;
}

void CasStore::sweep_sometimes(const LockKey& key, const CallOptions& call_options) {
  if (once_in(releases_per_sweep)) sweep(lock_record({}), lock_record(key), call_options);
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

std::vector<Holder> CasStore::evict(const LockKey& key, std::optional<Fence> fence, const Who& by,
                                    const CallOptions& call_options) {
  std::vector<Holder> evicted;
  std::vector<HoldEntry> meant;
  const auto force = [&](OpenRecord& record, std::optional<Fence> which) {
    auto outcome = record.table.force(which, by, record.now, record);
    record.finish(outcome.more);
    return std::move(outcome.answer);
  };
  change({key, Token{}, {}, {}, false, nullptr, false, call_options},
         [&](OpenRecord& record, bool unsure) {
           if (!unsure) {
             meant = force(record, fence);
             evicted = holders_from(meant, record.now);
             return !meant.empty();
           }
           // The earlier write may have been done, and the key may have another holder by now.
           bool any = false;
           for (const HoldEntry& hold : meant) any = !force(record, hold.fence).empty() || any;
           return any;
         });
  own_.erase(key);
  return evicted;
}

Wake CasStore::sleep(const Claim& claim, Deadline until, int cancel_fd) {
  if (leases_) return await_lives(claim, until, cancel_fd);
  if (!backend_->hears_messages()) return poll(claim, until, cancel_fd);
  while (true) {
    const auto heard = backend_->next_message(channel_, until, cancel_fd);
    if (const auto* why = std::get_if<Wake::Reason>(&heard)) return Wake{*why, {}};
    if (auto wake = wake_from(std::get<std::string>(heard), claim)) return *wake;
    if (const auto why = end_of_sleep(until, cancel_fd)) return Wake{*why, {}};
  }
}

/// Returns the wake-up that a message means for this claim; nothing if it was for an earlier claim.
std::optional<Wake> CasStore::wake_from(std::string_view message, const Claim& claim) const {
  const auto kind = take_until(message, ' ');
  if (take_until(message, ' ') != message_tag(claim.token)) return std::nullopt;
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

}  // namespace dlock
