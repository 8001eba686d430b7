#include "lock/acquire.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include "base/error.hpp"
#include "base/random.hpp"
#include "base/wait.hpp"
#include "lock/release.hpp"

namespace dlock {
namespace {

/// A waiter asks at least this often: the server drops a first waiter that is silent for 75 s.
constexpr milliseconds longest_sleep{25'000};
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

bool is_unavailable(const Error& error) { return error.kind() == ErrorKind::unavailable; }

/// Whether this refusal is temporary, so that a waiter will be granted the key later.
bool passes(const Refusal& refusal) {
  return refusal.why == Refusal::Reason::held || refusal.why == Refusal::Reason::unready;
}

/// One claim, until it is granted or there is a reason to stop.
class Attempt {
 public:
  enum class Stop { refused, timed_out, interrupted };
  using End = std::variant<Grant, Stop>;

  /// `ticket` comes from an earlier attempt for the same key. `reached`: the server has answered
  /// before.
  Attempt(Store& store, const Claim& claim, Deadline wait_end, bool unconfirmed,
          std::optional<Ticket> ticket, bool reached, AcquireListener& listener)
      : store_(store),
        claim_(claim),
        wait_end_(wait_end),
        unconfirmed_(unconfirmed),
        listener_(listener),
        ticket_(ticket),
        outage_(listener, reached, wait_end != never) {}

  /// If it may wait, this asks to join the queue, and treats a temporary error as a refusal: wait()
  /// retries.
  End ask_once(int cancel_fd);
  /// Waits in the queue, after ask_once() was refused, or instead of it with a ticket. If `begins`,
  /// the listener learns with the first answer that the wait has begun.
  End wait(int cancel_fd, bool begins);
  const Refusal& refusal() const { return refusal_; }
  std::optional<Ticket> ticket() const { return ticket_; }
  /// Whether the server has answered, in this attempt or before.
  bool reached() const { return outage_.reached(); }
  /// Whether ask_once() may have left it in the queue.
  bool may_be_queued() const { return may_be_queued_; }

 private:
  std::optional<Grant> take(const Answer& answer);
  std::optional<End> ask_and_sleep(int cancel_fd);
  End ask_last(int cancel_fd);
  std::optional<End> sleep(int cancel_fd);
  std::optional<Grant> confirm(int cancel_fd);

  Store& store_;
  const Claim& claim_;
  Deadline wait_end_;
  bool unconfirmed_;  ///< an unconfirmed grant by message is enough
  AcquireListener& listener_;
  Refusal refusal_;
  std::optional<Ticket> ticket_;
  bool may_be_queued_ = false;
  bool has_answer_ = false;
  bool to_announce_ = false;
  Outage outage_;
};

std::optional<Grant> Attempt::take(const Answer& answer) {
  if (const auto* grant = std::get_if<Grant>(&answer)) return *grant;
  refusal_ = std::get<Refusal>(answer);
  has_answer_ = true;
  return std::nullopt;
}

Attempt::End Attempt::ask_once(int cancel_fd) {
  const bool waits = BootClock::now() < wait_end_;
  may_be_queued_ = waits;
  try {
    const Ask ask{waits, std::nullopt, waits};
    auto grant = take(store_.acquire(claim_, ask, call_options_for(claim_, cancel_fd)));
    outage_.end();
    if (grant) return *grant;
    may_be_queued_ = waits && passes(refusal_);
    if (may_be_queued_) ticket_ = refusal_.ticket;
    // The first refusal reports only the other waiters, so do not count this client.
    if (refusal_.ahead < refusal_.waiting) --refusal_.waiting;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::interrupted) return Stop::interrupted;
    if (!waits || !outage_.may_pass(error)) throw;
    outage_.go_on(error, wait_end_, cancel_fd);
    // No server has said that the key is held.
    if (BootClock::now() >= wait_end_) throw;
  }
  return Stop::refused;
}

Attempt::End Attempt::wait(int cancel_fd, bool begins) {
  if (begins && has_answer_) listener_.waiting(claim_.key, refusal_);
  to_announce_ = begins && !has_answer_;
  return ask_until(
             wait_end_, cancel_fd, outage_, [&] { return ask_and_sleep(cancel_fd); },
             [&] { return ask_last(cancel_fd); })
      .value_or(Stop::interrupted);
}

Attempt::End Attempt::ask_last(int cancel_fd) {
  const auto until = later(BootClock::now(), time_for_a_last_look);
  const Deadline usual = call_options_for(claim_, cancel_fd).deadline;
  try {
    auto grant = take(store_.acquire(claim_, {true, ticket_}, {std::min(until, usual), cancel_fd}));
    if (grant) return *grant;
  } catch (const Error&) {
    // The last refusal remains the result.
  }
  const bool stood_in_it = ticket_ && refusal_.waiting > 0;
  if (stood_in_it) --refusal_.waiting;
  return Stop::timed_out;
}

std::optional<Attempt::End> Attempt::ask_and_sleep(int cancel_fd) {
  CallOptions call_options = call_options_for(claim_, cancel_fd);
  call_options.deadline = std::min(call_options.deadline, later(wait_end_, time_for_a_last_answer));
  auto grant = take(store_.acquire(claim_, {true, ticket_}, call_options));
  outage_.end();
  if (grant) return *grant;
  if (!passes(refusal_)) return Stop::refused;
  ticket_ = refusal_.ticket;
  if (std::exchange(to_announce_, false)) {
    listener_.waiting(claim_.key, refusal_);
  } else {
    listener_.still_waiting(claim_.key, refusal_);
  }
  return sleep(cancel_fd);
}

std::optional<Attempt::End> Attempt::sleep(int cancel_fd) {
  const auto spread =
      refusal_.ahead < ask_at_once ? milliseconds(0) : random_up_to(milliseconds(spread_ms));
  const auto at_most = refusal_.ahead < near_head
                           ? std::min(longest_sleep, refusal_.longest_sleep_near_head)
                           : longest_sleep;
  const Deadline sign_of_life = later(BootClock::now(), at_most);
  auto until = std::min(later(BootClock::now(), refusal_.ask_again_in + spread), sign_of_life);
  while (true) {
    const Wake wake = store_.sleep(claim_, std::min(until, wait_end_), cancel_fd);
    if (wake.why == Wake::Reason::granted) {
      const bool enough = wake.grant && (unconfirmed_ || wake.grant->confirmed);
      const auto grant = enough ? wake.grant : confirm(cancel_fd);
      return grant ? std::optional<End>(*grant) : std::nullopt;
    }
    if (wake.why != Wake::Reason::changed) return std::nullopt;
    until = std::min(wake.ask_again_at, sign_of_life);
  }
}

std::optional<Grant> Attempt::confirm(int cancel_fd) {
  return store_.renew(claim_, {}, call_options_for(claim_, cancel_fd)).grant;
}

/// All claims of one acquisition.
class Acquisition {
 public:
  Acquisition(Store& store, std::vector<Claim> claims, const AcquireTerms& terms,
              AcquireListener& listener)
      : store_(store), claims_(std::move(claims)), terms_(terms), listener_(listener) {}

  Acquired run();

 private:
  /// The result, or nothing to start over: the votes were split, a hold has expired, or a key
  /// acquired before was lost during the wait.
  std::optional<Acquired> take_all();
  enum class Waited { granted, stopped, lost_another };
  Waited wait_for(Attempt& attempt, const Claim& claim);
  Attempt::End wait_renewing(Attempt& attempt, bool begins);
  Acquired stopped(Attempt::Stop stop, const Attempt& attempt, const Claim& claim);
  bool may_wait() const { return BootClock::now() < wait_end_; }
  bool begins_anew(const Attempt& attempt, const Claim& claim);
  bool pause() const;
  bool refresh();
  void renew_tokens();
  void leave();

  Store& store_;
  std::vector<Claim> claims_;
  const AcquireTerms& terms_;
  AcquireListener& listener_;
  Deadline wait_end_ = never;
  std::vector<Held> held_;
  std::optional<Attempt::Stop> stop_;
  std::size_t asked_ = 0;          ///< how many of the claims may be held or queued
  bool reached_ = terms_.reached;  ///< the server has answered before
  bool waited_ = false;
  std::size_t before_wait_ = 0;  ///< how many were acquired before the last one that needed a wait
  std::map<LockKey, Ticket> tickets_;
  std::map<LockKey, Deadline> waiting_since_;
  Deadline begun_ = BootClock::now();
  Deadline again_at_{};
  bool goes_on_waiting_ = false;  ///< the next attempt continues this wait with another token
};

Acquired Acquisition::run() {
  std::sort(claims_.begin(), claims_.end(),
            [](const Claim& a, const Claim& b) { return a.key < b.key; });
  if (terms_.wait) wait_end_ = later(BootClock::now(), *terms_.wait);
  while (true) {
    try {
      if (auto done = take_all()) return std::move(*done);
    } catch (const Error& error) {
      leave();
      if (error.kind() == ErrorKind::interrupted) return Interrupted{reached_};
      throw;
    } catch (...) {
      leave();
      throw;
    }
    leave();
    renew_tokens();
    if (!std::exchange(goes_on_waiting_, false)) waiting_since_.clear();
    if (!pause()) return Interrupted{reached_};
  }
}

std::optional<Acquired> Acquisition::take_all() {
  held_.clear();
  waited_ = false;
  before_wait_ = 0;
  // With several keys, all but the last are renewed before the command starts. If the server is
  // far, that may take longer than the lease of an unconfirmed grant.
  const bool unconfirmed = terms_.unconfirmed && claims_.size() == 1;
  for (const Claim& claim : claims_) {
    const auto known = tickets_.find(claim.key);
    const auto ticket = known == tickets_.end() ? std::nullopt : std::optional(known->second);
    Attempt attempt(store_, claim, wait_end_, unconfirmed, ticket, reached_, listener_);
    asked_ = held_.size() + 1;
    // A client that was queued before asks again with its ticket, so that a late answer does not
    // cost its position.
    const auto first =
        ticket && may_wait() ? Attempt::Stop::refused : attempt.ask_once(terms_.cancel_fd);
    reached_ = attempt.reached();
    if (const auto* grant = std::get_if<Grant>(&first)) {
      held_.push_back({claim, *grant});
      continue;
    }
    const auto stop = std::get<Attempt::Stop>(first);
    if (stop == Attempt::Stop::refused && begins_anew(attempt, claim)) return std::nullopt;
    if (stop != Attempt::Stop::refused || !may_wait() || !passes(attempt.refusal())) {
      return stopped(stop, attempt, claim);
    }
    const auto waited = wait_for(attempt, claim);
    reached_ = attempt.reached();
    if (waited == Waited::lost_another) return std::nullopt;
    if (waited == Waited::stopped) {
      if (*stop_ == Attempt::Stop::refused && begins_anew(attempt, claim)) return std::nullopt;
      return stopped(*stop_, attempt, claim);
    }
  }
  if (!refresh()) return std::nullopt;
  return held_;
}

/// Whether to start over. After a split vote, dlock releases all votes so that others may go first.
/// If a hold of this token was granted and expired unnoticed, it uses a new token.
bool Acquisition::begins_anew(const Attempt& attempt, const Claim& claim) {
  const Refusal& refusal = attempt.refusal();
  if (refusal.why == Refusal::Reason::gone && waited_ && may_wait()) {
    if (attempt.ticket()) tickets_[claim.key] = *attempt.ticket();
    again_at_ = BootClock::now();
    goes_on_waiting_ = true;
    return true;
  }
  if (refusal.why != Refusal::Reason::split) return false;
  const auto end = std::max(wait_end_, later(begun_, request_timeout(claim.ttl)));
  again_at_ = later(BootClock::now(), random_up_to(refusal.ask_again_in));
  if (waited_) tickets_[claim.key] = refusal.ticket;
  goes_on_waiting_ = again_at_ < end;
  return goes_on_waiting_;
}

/// Returns false if interrupted.
bool Acquisition::pause() const {
  return again_at_ <= BootClock::now() || !sleep_until(again_at_, terms_.cancel_fd);
}

Acquisition::Waited Acquisition::wait_for(Attempt& attempt, const Claim& claim) {
  waited_ = true;
  const auto [since, first] = waiting_since_.try_emplace(claim.key, BootClock::now());
  const bool upkeep = !held_.empty() && needs_renewal(store_, held_.front().claim);
  const auto result =
      upkeep ? wait_renewing(attempt, first) : attempt.wait(terms_.cancel_fd, first);
  if (const auto* stop = std::get_if<Attempt::Stop>(&result)) {
    const bool told = readable(terms_.cancel_fd);
    if (*stop == Attempt::Stop::interrupted && !told) return Waited::lost_another;
    stop_ = *stop;
    return Waited::stopped;
  }
  listener_.on_acquired(claim.key, passed_since(since->second));
  waiting_since_.erase(since);
  before_wait_ = held_.size();
  held_.push_back({claim, std::get<Grant>(result)});
  return Waited::granted;
}

/// Waits while the held keys are renewed; interrupted also if one of them is lost.
Attempt::End Acquisition::wait_renewing(Attempt& attempt, bool begins) {
  const StorePtr second = terms_.open_second();
  LeaseRenewer renewer(*second, held_);
  const int fds[] = {terms_.cancel_fd, renewer.lost_fd()};
  const AnyOf interrupt(fds);
  const auto take_over = [&] {
    const auto before = std::exchange(held_, renewer.stop());
    for (std::size_t i = 0; i < held_.size(); ++i) {
      // Before the first renewal, the second connection has not asked any server to record the
      // hold.
      const bool renewed = held_[i].grant.lease.valid_until != before[i].grant.lease.valid_until;
      held_[i].renewed_elsewhere = before[i].renewed_elsewhere || renewed;
    }
  };
  try {
    auto result = attempt.wait(interrupt.fd(), begins);
    take_over();
    return result;
  } catch (...) {
    take_over();
    throw;
  }
}

Acquired Acquisition::stopped(Attempt::Stop stop, const Attempt& attempt, const Claim& claim) {
  // A refusal that never queued and holds nothing needs no release, unless the votes were split.
  const bool split = attempt.refusal().why == Refusal::Reason::split;
  const bool queued = waited_ || attempt.may_be_queued();
  if (queued || split || !held_.empty() || stop == Attempt::Stop::interrupted) leave();
  if (stop == Attempt::Stop::interrupted) return Interrupted{reached_};
  if (attempt.refusal().why == Refusal::Reason::unready) {
    throw Error(ErrorKind::unavailable, attempt.refusal().reason);
  }
  return GaveUp{claim.key, attempt.refusal(), waited_};
}

/// After a wait for one key, the leases of the keys before it are partly used up, and holds that
/// need no renewal may be lost.
bool Acquisition::refresh() {
  for (Held& held : std::span(held_).first(before_wait_)) {
    try {
      const auto renewed = store_.renew(held.claim, {.granted = held.grant.fence},
                                        call_options_for(held.claim, terms_.cancel_fd));
      if (!renewed.grant) return false;
      held.grant = *renewed.grant;
    } catch (const Error& error) {
      if (!is_unavailable(error) || !may_wait()) throw;
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

/// dlock never asks again with a released token, because the engine may remember it as released.
void Acquisition::renew_tokens() {
  const Token token = new_token(claims_.front().owner);
  for (Claim& claim : claims_) claim.token = token;
}

}  // namespace

Acquired acquire(Store& store, std::vector<Claim> claims, const AcquireTerms& terms,
                 AcquireListener& listener) {
  return Acquisition(store, std::move(claims), terms, listener).run();
}

}  // namespace dlock
