#include "lock/lease_renewer.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <utility>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/random.hpp"
#include "base/text.hpp"
#include "base/thread.hpp"
#include "base/wait.hpp"

namespace dlock {
namespace {

constexpr int renewals_a_lease = 3;

/// NTP corrects a clock by less than this when it starts.
constexpr std::chrono::seconds noteworthy_step{1};

/// A store that is not needed for longer than this is suspended.
constexpr std::chrono::seconds long_rest{5};

/// How long to ask for a hold that may have expired already.
constexpr milliseconds longest_doubt{500};

constexpr milliseconds pause_before_confirming{50};

/// Renewals come a third of this time apart. An engine may grant a longer lease than was asked for.
milliseconds span_of(const Claim& claim, const Lease& lease) {
  return std::max(claim.ttl, lease.length);
}

milliseconds pause_after_failure(milliseconds ttl) {
  return std::clamp(ttl / 30, milliseconds(10), milliseconds(1000));
}

}  // namespace

milliseconds request_timeout(milliseconds ttl) {
  return std::min(silence_of_a_dead_server, ttl / 6);
}

RenewalSchedule::RenewalSchedule(Store& store, std::vector<Held> held, LeaseListener& listener,
                                 int stop_fd)
    : store_(store), listener_(listener), stop_fd_(stop_fd) {
  const auto now = BootClock::now();
  for (Held& each : held) {
    const auto rest = each.grant.lease.valid_until - now;
    auto due = never;
    if (each.grant.lease.valid_until != never) {
      const auto span = span_of(each.claim, each.grant.lease);
      due = later(now, rest - span * (renewals_a_lease - 1) / renewals_a_lease);
      // Those that were granted the lock together do not confirm it together.
      const auto spread =
          each.claim.limit == exclusive ? milliseconds(0) : left_until(now + rest / 4);
      if (!each.grant.confirmed) due = later(now, random_up_to(spread));
      if (each.hidden > std::chrono::nanoseconds(0)) due = now;
    }
    leases_.push_back({std::move(each), due});
  }
  promise();
}

Deadline RenewalSchedule::next_due() const {
  Deadline due = never;
  for (const Upkept& lease : leases_) due = std::min(due, lease.next);
  return due;
}

void RenewalSchedule::renew_due(bool all) {
  bool was_handed_over = false;
  for (Upkept& lease : leases_) {
    const bool kept_up = lease.next != never;
    was_handed_over = was_handed_over || !lease.held.grant.confirmed;
    if (kept_up && (all || lease.next <= BootClock::now())) renew(lease);
    if (readable(stop_fd_)) return;
  }
  // After a hand-over the lease may be short, so keep the store active.
  if (!was_handed_over && next_due() > later(BootClock::now(), long_rest))
    store_.suspend(Suspension::rest);
}

void RenewalSchedule::cannot_renew(const Error& why) {
  for (Upkept& lease : leases_) {
    if (lease.next != never) failed(lease, BootClock::now(), why);
  }
}

void RenewalSchedule::connection_closed() {
  constexpr std::chrono::seconds least_pause{1};
  const auto now = BootClock::now();
  if (renewed_early_at_ <= now)
    renewed_early_at_ = std::max(now, later(renewed_early_at_, least_pause));
  for (Upkept& lease : leases_) {
    if (lease.next != never) lease.next = std::min(lease.next, renewed_early_at_);
  }
}

void RenewalSchedule::doubt(std::chrono::nanoseconds step) {
  if (std::chrono::abs(step) < noteworthy_step) return;
  for (Upkept& lease : leases_) {
    if (lease.next == never) continue;
    lease.held.hidden += std::max(step, std::chrono::nanoseconds(0));
    lease.next = BootClock::now();
  }
}

std::vector<Held> RenewalSchedule::take() {
  std::vector<Held> held;
  for (Upkept& lease : leases_) held.push_back(std::move(lease.held));
  leases_.clear();
  return held;
}

void RenewalSchedule::ended(Upkept& lease) {
  const auto over = passed_since(lease.held.grant.lease.valid_until);
  listener_.failed(
      {lease.held.claim.key, false, true,
       "its lease ended " + human_duration(over) + " ago, while dlock was suspended or stopped"});
  lease.next = never;
}

milliseconds RenewalSchedule::time_to_answer(const Upkept& lease) {
  const Grant& grant = lease.held.grant;
  if (later(BootClock::now(), lease.held.hidden) >= grant.lease.valid_until) return longest_doubt;
  const auto usual = request_timeout(span_of(lease.held.claim, grant.lease));
  return grant.confirmed ? usual : std::min(usual, lease.confirm_within);
}

void RenewalSchedule::renew(Upkept& lease) {
  const Claim& claim = lease.held.claim;
  const auto now = BootClock::now();
  const Deadline end = lease.held.grant.lease.valid_until;
  if (now >= end) return ended(lease);
  const Deadline until = std::min(end, later(now, time_to_answer(lease)));
  try {
    const auto renewed =
        store_.renew(claim, {.granted = lease.held.grant.fence}, {until, stop_fd_});
    if (!renewed.grant) {
      listener_.failed(
          {claim.key, true, true, gone_from(store_, renewed.evicted_by), renewed.evicted_by});
      lease.next = never;
      return;
    }
    lease.held.grant.lease = renewed.grant->lease;
    lease.held.grant.confirmed = true;
    lease.held.failing_since.reset();
    lease.held.hidden = std::chrono::nanoseconds(0);
    lease.next = later(now, span_of(claim, renewed.grant->lease) / renewals_a_lease);
    promise();
    listener_.renewed(claim.key, renewed.grant->margin);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::interrupted) return failed(lease, now, error);
    if (!lease.held.failing_since) lease.held.failing_since = now;
  } catch (const std::exception& error) {
    failed(lease, now, Error(ErrorKind::host_refused, error.what()));
  }
}

void RenewalSchedule::failed(Upkept& lease, Deadline since, const Error& error) {
  const auto now = BootClock::now();
  if (!lease.held.failing_since) lease.held.failing_since = since;
  const bool away = error.kind() == ErrorKind::unavailable && !is_reply(error.cause());
  std::string why = (away ? "server unreachable since " : "not renewed since ") +
                    iso8601(wall_at(*lease.held.failing_since)) + ": " + error.what();
  const bool shortened = lease.held.hidden > std::chrono::nanoseconds(0);
  if (shortened) {
    why = "the clock of this host was set forward by " +
          human_duration(std::chrono::floor<milliseconds>(lease.held.hidden)) +
          ", so that its lease may have passed; " + why;
    lease.held.grant.lease.valid_until -= std::exchange(lease.held.hidden, {});
  }
  listener_.failed({lease.held.claim.key, false, false, why});
  // Only now, so that the reason of a lease that has already expired is this failure.
  if (shortened) promise();
  auto pause = pause_after_failure(span_of(lease.held.claim, lease.held.grant.lease));
  if (!lease.held.grant.confirmed) {
    pause = std::min(pause, pause_before_confirming);
    lease.confirm_within *= 8;
  }
  lease.next = std::min(later(now, pause), lease.held.grant.lease.valid_until);
}

void RenewalSchedule::promise() {
  Deadline safe = never;
  for (const Upkept& lease : leases_) safe = std::min(safe, lease.held.grant.lease.valid_until);
  const bool confirmed = std::all_of(leases_.begin(), leases_.end(), [](const Upkept& lease) {
    return lease.held.grant.confirmed;
  });
  listener_.promised(safe, confirmed);
}

milliseconds usual_grace(milliseconds ttl) { return std::min(milliseconds(5000), ttl / 3); }

std::string lost_text(const LockKey& key, const std::string& reason) {
  return "lost " + escaped(key.text) + ": " + reason;
}

namespace {

/// The margins that were already reported.
std::map<LockKey, std::size_t> margins_of(const std::vector<Held>& held) {
  std::map<LockKey, std::size_t> margins;
  for (const Held& each : held) {
    if (each.grant.margin) margins[each.claim.key] = each.grant.margin->held;
  }
  return margins;
}

}  // namespace

LeaseRenewer::LeaseRenewer(Store& store, std::vector<Held> held,
                           std::atomic<BootClock::rep>* safe_until, Begin begin_at)
    : store_(store),
      doubts_(epoll_create1(EPOLL_CLOEXEC)),
      safe_until_(safe_until != nullptr ? safe_until : &own_safe_until_),
      margins_(margins_of(held)),
      stays_(begin_at == Begin::now),
      first_key_(held.front().claim.key),
      upkeep_(store, std::move(held), *this, stop_.fd()) {
  epoll_event clock_set{EPOLLIN, {}};
  epoll_ctl(doubts_.get(), EPOLL_CTL_ADD, steps_.fd(), &clock_set);
  watch_connections();
  if (stays_ || upkeep_.next_due() <= BootClock::now()) begin();
}

LeaseRenewer::~LeaseRenewer() { stop(); }

void LeaseRenewer::start() {
  if (started()) return;
  if (thread_.joinable()) thread_.join();
  resting_ = false;
  take_doubts();
  if (!stays_ && upkeep_.next_due() > BootClock::now()) return;
  try {
    begin();
  } catch (const Error& error) {
    upkeep_.cannot_renew(error);
  }
}

void LeaseRenewer::start_to_stay() {
  {
    const std::lock_guard guard(mutex_);
    stays_ = true;
  }
  start();
}

void LeaseRenewer::begin() {
  thread_ = start_thread([this] {
    try {
      work();
    } catch (const std::exception& error) {
      failed({first_key_, false, true, error.what()});
    }
  });
}

/// The kernel reports each close once (EPOLLET); sockets that are watched already stay watched.
void LeaseRenewer::watch_connections() {
  for (const int fd : store_.connections()) {
    epoll_event closed{EPOLLRDHUP | EPOLLET, {}};
    epoll_ctl(doubts_.get(), EPOLL_CTL_ADD, fd, &closed);
  }
}

void LeaseRenewer::take_doubts() {
  upkeep_.doubt(steps_.taken());
  epoll_event event{};
  while (epoll_wait(doubts_.get(), &event, 1, 0) > 0 && event.events != EPOLLIN) {
    upkeep_.connection_closed();
  }
}

std::optional<Loss> LeaseRenewer::loss() const {
  const std::lock_guard guard(mutex_);
  return loss_;
}

void LeaseRenewer::renew_now(milliseconds at_most) {
  start_to_stay();
  if (!started()) return;
  std::unique_lock guard(mutex_);
  ++hurries_;
  hurry_.raise();
  renewed_.wait_for(guard, at_most, [this] { return hurries_ == 0; });
}

std::vector<Held> LeaseRenewer::stop() {
  // A reply comes sooner than a new connection: if we broke off, the next holder would wait longer.
  if (started() && !confirmed_) {
    constexpr milliseconds longest_reply{200};
    std::unique_lock guard(mutex_);
    renewed_.wait_for(guard, longest_reply, [this] { return confirmed_ || lost_.raised(); });
  }
  stop_.raise();
  if (thread_.joinable()) thread_.join();
  return upkeep_.take();
}

void LeaseRenewer::work() {
  while (true) {
    pollfd fds[] = {{stop_.fd(), POLLIN, 0}, {hurry_.fd(), POLLIN, 0}, {doubts_.get(), POLLIN, 0}};
    poll_until(fds, upkeep_.next_due());
    if (stop_.raised()) return;
    take_doubts();
    const bool all = hurry_.raised();
    hurry_.clear();
    upkeep_.renew_due(all);
    if (stop_.raised()) return;
    watch_connections();
    if (all) {
      const std::lock_guard guard(mutex_);
      hurries_ = 0;
      renewed_.notify_all();
    }
    if (can_stop_thread()) return;
  }
}

/// Whether nothing is due for so long that ending the thread costs less than keeping it.
bool LeaseRenewer::can_stop_thread() {
  constexpr milliseconds short_while{20};
  const std::lock_guard guard(mutex_);
  if (stays_ || upkeep_.next_due() <= later(BootClock::now(), short_while)) return false;
  resting_ = true;
  news_.raise();
  return true;
}

void LeaseRenewer::promised(Deadline safe_until, bool confirmed) {
  const auto before = safe_until_->exchange(safe_until.time_since_epoch().count());
  if (before > safe_until.time_since_epoch().count()) news_.raise();
  const std::lock_guard guard(mutex_);
  confirmed_ = confirmed;
  renewed_.notify_all();
}

void LeaseRenewer::renewed(const LockKey& key, const std::optional<QuorumMargin>& margin) {
  const std::lock_guard guard(mutex_);
  if (!lost_.raised()) loss_.reset();
  if (!margin) return;
  if (std::exchange(margins_[key], margin->held) == margin->held && !margin->misnamed) return;
  changed_margins_.emplace_back(key, *margin);
  news_.raise();
}

std::vector<std::pair<LockKey, QuorumMargin>> LeaseRenewer::take_margins() {
  const std::lock_guard guard(mutex_);
  return std::exchange(changed_margins_, {});
}

void LeaseRenewer::failed(const Loss& loss) {
  const std::lock_guard guard(mutex_);
  if (lost_.raised()) return;
  // Signal first: copying the text may throw. A caller that asks for the loss waits for the mutex.
  if (loss.final) {
    lost_.raise();
    news_.raise();
  }
  // The error that made renewals fail says more than that the lease has expired.
  if (!loss.final || loss.gone || !loss_) loss_ = loss;
  loss_->final = loss.final;
}

}  // namespace dlock
