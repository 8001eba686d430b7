#include "lock/acquire.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "base/error.hpp"
#include "base/random.hpp"
#include "base/wait.hpp"
#include "lock/release.hpp"

namespace dlock {
namespace {

constexpr std::size_t near_head = 16;
/// When a lease ends, the first few waiters ask at once and the others spread their requests.
constexpr std::size_t ask_at_once = 3;
constexpr int spread_ms = 50;
/// How long the release may take after the user interrupted or the wait timed out.
constexpr milliseconds time_to_leave{500};
/// The wait may last this much longer, to report the current holders to the user.
constexpr milliseconds time_for_a_last_look{200};

CallOptions call_options_for(const Claim& claim, int cancel_fd) {
  return {later(BootClock::now(), request_timeout(claim.ttl)), cancel_fd};
}

/// Whether this refusal is temporary: the server may still grant the key to a waiter.
bool passes(const Refusal& refusal) {
  return refusal.why == Refusal::Reason::held || refusal.why == Refusal::Reason::unready;
}

/// One call of acquire(): its claims, and the holds acquired so far.
class Acquisition {
 public:
  Acquisition(Store& store, std::vector<Claim> claims, const AcquireOptions& options,
              AcquireListener& listener)
      : store_(store),
        claims_(std::move(claims)),
        options_(options),
        listener_(listener),
        wait_end_(std::min(options.wait ? later(BootClock::now(), *options.wait) : never,
                           options.give_up_at)),
        outage_(listener, options.reached, options.wait.has_value()) {}

  Acquired run();

 private:
  enum class Stop { refused, timed_out, interrupted, lost_another };
  using End = std::variant<Grant, Stop>;

  /// The result, or nothing to start over: the votes were split, a hold has expired, or a key
  /// acquired before was lost during the wait.
  std::optional<Acquired> take_all();
  End take(const Claim& claim);
  std::optional<End> ask(const Ask& ask, const CallOptions& call_options);
  std::optional<End> ask_first();
  End wait(int cancel_fd);
  End wait_renewing();
  End ask_last(int cancel_fd);
  void preempt(int cancel_fd);
  std::optional<End> sleep(int cancel_fd);
  CallOptions call_options(int cancel_fd) const { return call_options_for(*claim_, cancel_fd); }
  Acquired stopped(Stop stop);
  bool may_wait() const { return BootClock::now() < wait_end_; }
  bool begins_anew();
  bool refresh();
  void leave();

  Store& store_;
  std::vector<Claim> claims_;
  const AcquireOptions& options_;
  AcquireListener& listener_;
  Deadline wait_end_;
  Outage outage_;
  std::vector<Held> held_;
  const Claim* claim_ = nullptr;  ///< the claim that take() asks for
  Refusal refusal_;               ///< the last refusal of `claim_`
  std::optional<Ticket> ticket_;  ///< the position in the queue for `claim_`
  bool may_sleep_ = false;        ///< ask_first() was refused; wait() may sleep before it asks
  std::size_t asked_ = 0;         ///< how many of the claims may be held or queued
  bool waited_ = false;
  std::size_t before_wait_ = 0;  ///< how many keys were acquired before the last wait
  std::map<LockKey, Ticket> tickets_;
  std::set<LockKey> preempted_;
  Deadline begun_ = BootClock::now();
  Deadline again_at_{};
};

Acquired Acquisition::run() {
  std::sort(claims_.begin(), claims_.end(),
            [](const Claim& a, const Claim& b) { return a.key < b.key; });
  while (true) {
    try {
      if (auto done = take_all()) return std::move(*done);
    } catch (const Error& error) {
      leave();
      if (error.kind() == ErrorKind::interrupted) return Interrupted{outage_.reached()};
      throw;
    } catch (...) {
      leave();
      throw;
    }
    leave();
    // dlock never asks again with a released token, because the engine may remember it as released.
    const Token token = new_token(claims_.front().owner, claims_.size());
    for (Claim& claim : claims_) claim.token = token;
    if (again_at_ > BootClock::now() && sleep_until(again_at_, options_.cancel_fd)) {
      return Interrupted{outage_.reached()};
    }
  }
}

std::optional<Acquired> Acquisition::take_all() {
  held_.clear();
  waited_ = false;
  before_wait_ = 0;
  for (const Claim& claim : claims_) {
    asked_ = held_.size() + 1;
    const End end = take(claim);
    if (const auto* grant = std::get_if<Grant>(&end)) {
      held_.push_back({claim, *grant});
      continue;
    }
    const auto stop = std::get<Stop>(end);
    if (stop == Stop::lost_another || (stop == Stop::refused && begins_anew())) {
      return std::nullopt;
    }
    return stopped(stop);
  }
  if (!refresh()) return std::nullopt;
  return held_;
}

/// Asks for one claim until it is granted or there is a reason to stop.
Acquisition::End Acquisition::take(const Claim& claim) {
  claim_ = &claim;
  refusal_ = {};
  may_sleep_ = false;
  const auto known = tickets_.find(claim.key);
  ticket_ = known == tickets_.end() ? std::nullopt : std::optional(known->second);
  // A client that was queued before asks again with its ticket, so that a late answer does not cost
  // its position.
  if (!ticket_ || !may_wait()) {
    if (const auto end = ask_first()) return *end;
  }
  waited_ = true;
  before_wait_ = held_.size();
  const bool renews = !held_.empty() && needs_renewal(store_, held_.front().claim);
  End end = renews ? wait_renewing() : wait(options_.cancel_fd);
  if (std::holds_alternative<Grant>(end)) listener_.on_acquired(claim.key);
  return end;
}

/// Returns nothing if the claim is queued.
std::optional<Acquisition::End> Acquisition::ask(const Ask& ask, const CallOptions& call_options) {
  const Answer answer = store_.acquire(*claim_, ask, call_options);
  outage_.end();
  if (const auto* grant = std::get_if<Grant>(&answer)) return *grant;
  refusal_ = std::get<Refusal>(answer);
  // The first refusal reports only the other waiters, so do not count this client.
  if (!ask.ticket && refusal_.ahead < refusal_.waiting) --refusal_.waiting;
  if (!ask.wait || !passes(refusal_)) return Stop::refused;
  ticket_ = refusal_.ticket;
  listener_.waiting(claim_->key, refusal_);
  return std::nullopt;
}

/// Asks for the first time. If the client may wait, a temporary error counts as a refusal, and
/// wait() retries.
std::optional<Acquisition::End> Acquisition::ask_first() {
  const bool waits = may_wait();
  const bool asks_again = waits && store_.waiter_asks_again();
  try {
    auto end = ask({waits, std::nullopt, asks_again}, call_options(options_.cancel_fd));
    may_sleep_ = !asks_again;
    return end;
  } catch (const Error& error) {
    if (!waits || !outage_.may_pass(error)) throw;
    outage_.go_on(error, wait_end_, options_.cancel_fd);
    // The time is over, and no server has said that the key is held, so report the error.
    if (!may_wait()) throw;
    return std::nullopt;
  }
}

/// Waits in the queue, after ask_first() was refused, or instead of it with a ticket.
Acquisition::End Acquisition::wait(int cancel_fd) {
  const auto ask_and_sleep = [&]() -> std::optional<End> {
    if (!std::exchange(may_sleep_, false)) {
      CallOptions options = call_options(cancel_fd);
      options.deadline = std::min(options.deadline, later(wait_end_, time_for_a_last_answer));
      if (auto end = ask({true, ticket_}, options)) return end;
    }
    preempt(cancel_fd);
    return sleep(cancel_fd);
  };
  return ask_until(wait_end_, cancel_fd, outage_, ask_and_sleep,
                   [&] { return ask_last(cancel_fd); })
      .value_or(Stop::interrupted);
}

Acquisition::End Acquisition::ask_last(int cancel_fd) {
  try {
    const auto end = ask({true, ticket_}, at_most(time_for_a_last_look, call_options(cancel_fd)));
    if (end && std::holds_alternative<Grant>(*end)) return *end;
  } catch (const Error&) {
    // The last refusal remains the result.
  }
  const bool stood_in_it = ticket_ && refusal_.waiting > 0;
  if (stood_in_it) --refusal_.waiting;
  return Stop::timed_out;
}

/// Asks the holders to stop, once: later ones were before this client in the queue.
void Acquisition::preempt(int cancel_fd) {
  if (!options_.preempt || preempted_.contains(claim_->key)) return;
  Who by = claim_->who;
  by.label = "--preempt" + (by.label.empty() ? "" : " of " + by.label);
  const auto asked = store_.evict(claim_->key, {{}, by, true}, call_options(cancel_fd));
  preempted_.insert(claim_->key);
  listener_.preempted(claim_->key, asked);
}

std::optional<Acquisition::End> Acquisition::sleep(int cancel_fd) {
  const auto spread =
      refusal_.ahead < ask_at_once ? milliseconds(0) : random_up_to(milliseconds(spread_ms));
  const auto at_most = refusal_.ahead < near_head
                           ? std::min(refusal_.longest_sleep, refusal_.longest_sleep_near_head)
                           : refusal_.longest_sleep;
  const Deadline sign_of_life = later(BootClock::now(), at_most);
  auto until = std::min(later(BootClock::now(), refusal_.ask_again_in + spread), sign_of_life);
  while (true) {
    const Wake wake = store_.sleep(*claim_, std::min(until, wait_end_), cancel_fd);
    if (wake.why == Wake::Reason::granted) {
      // With several keys, refresh() renews all but the last before the command starts. If the
      // server is far, that may take longer than the lease of an unconfirmed grant.
      const bool unconfirmed = options_.unconfirmed && claims_.size() == 1;
      const bool enough = wake.grant && (unconfirmed || wake.grant->confirmed);
      const auto grant =
          enough ? wake.grant : store_.renew(*claim_, {}, call_options(cancel_fd)).grant;
      return grant ? std::optional<End>(*grant) : std::nullopt;
    }
    if (wake.why != Wake::Reason::changed) return std::nullopt;
    until = std::min(wake.ask_again_at, sign_of_life);
  }
}

/// Whether to start over. After a split vote, dlock releases all votes so that others may go first.
/// If a hold of this token was granted and expired unnoticed, dlock uses a new token.
bool Acquisition::begins_anew() {
  if (refusal_.why == Refusal::Reason::gone && waited_ && may_wait()) {
    if (ticket_) tickets_[claim_->key] = *ticket_;
    again_at_ = BootClock::now();
    return true;
  }
  if (refusal_.why != Refusal::Reason::split) return false;
  const auto end = std::max(wait_end_, later(begun_, request_timeout(claim_->ttl)));
  again_at_ = later(BootClock::now(), random_up_to(refusal_.ask_again_in));
  if (waited_) tickets_[claim_->key] = refusal_.ticket;
  return again_at_ < end;
}

/// Waits while a LeaseRenewer renews the held keys; stops also if one of them is lost.
Acquisition::End Acquisition::wait_renewing() {
  const StorePtr second = options_.open_second();
  LeaseRenewer renewer(*second, held_);
  const int fds[] = {options_.cancel_fd, renewer.lost_fd()};
  const AnyOf interrupt(fds);
  const auto take_over = [&] {
    const auto before = std::exchange(held_, renewer.stop());
    for (std::size_t i = 0; i < held_.size(); ++i) {
      // Before the first renewal, the second connection has not asked any server to record the
      // hold, so the release needs no tombstone.
      const bool renewed = held_[i].grant.lease.valid_until != before[i].grant.lease.valid_until;
      held_[i].renewed_elsewhere = before[i].renewed_elsewhere || renewed;
    }
  };
  End end = Stop::interrupted;
  try {
    end = wait(interrupt.fd());
  } catch (...) {
    take_over();
    throw;
  }
  take_over();
  const auto* stop = std::get_if<Stop>(&end);
  const bool lost = stop && *stop == Stop::interrupted && !readable(options_.cancel_fd);
  return lost ? Stop::lost_another : end;
}

Acquired Acquisition::stopped(Stop stop) {
  // Release only if this client has queued or holds a key, or if the votes were split.
  const bool split = refusal_.why == Refusal::Reason::split;
  if (waited_ || split || !held_.empty()) leave();
  if (stop == Stop::interrupted) return Interrupted{outage_.reached()};
  if (refusal_.why == Refusal::Reason::unready) {
    throw Error(ErrorKind::unavailable, refusal_.reason);
  }
  return GaveUp{claim_->key, refusal_, waited_};
}

/// Renews the holds acquired before the last wait: their leases are partly used up, and holds
/// without a lease may be lost. Returns false if one is lost, or cannot be renewed now.
bool Acquisition::refresh() {
  for (Held& held : std::span(held_).first(before_wait_)) {
    try {
      const auto renewed = store_.renew(held.claim, {.granted = held.grant.fence},
                                        call_options_for(held.claim, options_.cancel_fd));
      if (!renewed.grant) return false;
      held.grant = *renewed.grant;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::unavailable || !may_wait()) throw;
      return false;
    }
  }
  return true;
}

void Acquisition::leave() {
  std::vector<Held> asked = held_;
  for (std::size_t i = held_.size(); i < asked_; ++i) asked.push_back({claims_[i], {}});
  release_all(store_, asked, time_to_leave);
}

}  // namespace

Acquired acquire(Store& store, std::vector<Claim> claims, const AcquireOptions& options,
                 AcquireListener& listener) {
  return Acquisition(store, std::move(claims), options, listener).run();
}

}  // namespace dlock
