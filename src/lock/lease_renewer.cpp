#include "lock/lease_renewer.hpp"

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <limits>
#include <utility>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/random.hpp"
#include "base/thread.hpp"
#include "base/wait.hpp"

namespace dlock {
namespace {

constexpr int renewals_a_lease = 3;

/// A smaller step of the wall clock is no reason to renew: NTP makes such steps when it starts.
constexpr std::chrono::seconds noteworthy_step{1};

/// RenewalSchedule suspends a store that it does not need for longer than this.
constexpr std::chrono::seconds long_rest{5};

/// How long to ask for a hold that may have expired already.
constexpr milliseconds longest_doubt{500};

constexpr milliseconds pause_before_confirming{50};

/// How often dlock looks at a hold without a lease: another process may remove its files unnoticed,
/// and cleaners remove old ones.
constexpr milliseconds look_at_files_every{2000};
/// The same after a look failed.
constexpr milliseconds look_again_after{1000};
/// How long such a look may take: the calling thread must not miss its deadlines.
constexpr milliseconds longest_look{200};

bool has_lease(const Held& held) { return held.grant.lease.valid_until != never; }

/// Renewals come a third of this time apart. An engine may grant a longer lease than was asked for.
milliseconds span_of(const Claim& claim, const Lease& lease) {
  return std::max(claim.ttl, lease.length);
}

milliseconds pause_after_failure(const Held& held) {
  if (!has_lease(held)) return look_again_after;
  const auto span = span_of(held.claim, held.grant.lease);
  return std::clamp(span / 30, milliseconds(10), milliseconds(1000));
}

milliseconds pause_after_success(const Held& held) {
  if (!has_lease(held)) return look_at_files_every;
  return span_of(held.claim, held.grant.lease) / renewals_a_lease;
}

/// A descriptor that is readable once the wall clock was set while BootClock ran on: by a user, by
/// NTP, or by the guest agent of a virtual machine that was paused without any of its clocks
/// counting. Only in the last case did time pass that BootClock does not count, and a guest cannot
/// tell which case it was
/// (https://man7.org/linux/man-pages/man2/timerfd_create.2.html, TFD_TIMER_CANCEL_ON_SET).
Fd notice_clock_set() {
  Fd timer(timerfd_create(CLOCK_REALTIME, TFD_CLOEXEC | TFD_NONBLOCK));
  itimerspec at_the_end_of_time{};
  at_the_end_of_time.it_value.tv_sec = std::numeric_limits<time_t>::max();
  timerfd_settime(timer.get(), TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &at_the_end_of_time,
                  nullptr);
  return timer;
}

/// A wall clock that is only slewed moves BootClock as well.
std::chrono::nanoseconds wall_against_boot() {
  return wall_now().time_since_epoch() - BootClock::now().time_since_epoch();
}

}  // namespace

milliseconds request_timeout(milliseconds ttl) {
  return std::min(silence_of_a_dead_server, ttl / 6);
}

RenewalSchedule::RenewalSchedule(Store& store, std::vector<Held> held, int stop_fd)
    : store_(store), stop_fd_(stop_fd) {
  const auto now = BootClock::now();
  for (Held& each : held) {
    const auto rest = each.grant.lease.valid_until - now;
    auto due = later(now, look_at_files_every);
    if (has_lease(each)) {
      const auto span = span_of(each.claim, each.grant.lease);
      due = later(now, rest - span * (renewals_a_lease - 1) / renewals_a_lease);
      // Spread the confirmations of clients that were granted the lock together.
      const auto spread =
          each.claim.limit == exclusive ? milliseconds(0) : left_until(now + rest / 4);
      if (!each.grant.confirmed) due = later(now, random_up_to(spread));
      if (each.clock_jump > std::chrono::nanoseconds(0)) due = now;
    }
    leases_.push_back({std::move(each), due});
  }
}

RenewalSchedule::Upkept& RenewalSchedule::first_due() {
  return *std::min_element(leases_.begin(), leases_.end(),
                           [](const Upkept& a, const Upkept& b) { return a.next < b.next; });
}

Deadline RenewalSchedule::next_due() const {
  Deadline due = never;
  for (const Upkept& lease : leases_) due = std::min(due, lease.next);
  return due;
}

std::optional<RenewalOutcome> RenewalSchedule::renew_next() {
  if (BootClock::now() < next_due() || readable(stop_fd_)) return std::nullopt;
  Upkept& lease = first_due();
  const bool was_handed_over = !lease.held.grant.confirmed;
  auto renewal = renew(lease);
  // After a hand-over the lease may be short, so keep the store active.
  const bool rests = !was_handed_over && next_due() > later(BootClock::now(), long_rest);
  if (rests && !readable(stop_fd_)) store_.suspend(Suspension::rest);
  return renewal;
}

RenewalOutcome RenewalSchedule::cannot_renew(const Error& why) {
  return failed(first_due(), BootClock::now(), why);
}

void RenewalSchedule::renew_by(Deadline due) {
  for (Upkept& lease : leases_) {
    if (lease.next != never) lease.next = std::min(lease.next, due);
  }
}

void RenewalSchedule::connection_closed() {
  constexpr std::chrono::seconds least_pause{1};
  const auto now = BootClock::now();
  if (renewed_early_at_ <= now)
    renewed_early_at_ = std::max(now, later(renewed_early_at_, least_pause));
  renew_by(renewed_early_at_);
}

void RenewalSchedule::doubt(std::chrono::nanoseconds step) {
  if (std::chrono::abs(step) < noteworthy_step) return;
  for (Upkept& lease : leases_) {
    if (lease.next == never || !has_lease(lease.held)) continue;
    lease.held.clock_jump += std::max(step, std::chrono::nanoseconds(0));
  }
  renew_now();
}

std::vector<Held> RenewalSchedule::take() {
  std::vector<Held> held;
  for (Upkept& lease : leases_) held.push_back(std::move(lease.held));
  leases_.clear();
  return held;
}

milliseconds RenewalSchedule::time_to_answer(const Upkept& lease) {
  const Grant& grant = lease.held.grant;
  if (!has_lease(lease.held)) return longest_look;
  if (later(BootClock::now(), lease.held.clock_jump) >= grant.lease.valid_until) {
    return longest_doubt;
  }
  const auto usual = request_timeout(span_of(lease.held.claim, grant.lease));
  return grant.confirmed ? usual : std::min(usual, lease.confirm_within);
}

std::optional<RenewalOutcome> RenewalSchedule::renew(Upkept& lease) {
  const Claim& claim = lease.held.claim;
  const auto lost = [&](bool gone, const std::string& why, const std::optional<Who>& by = {}) {
    lease.next = never;
    return RenewalOutcome{claim.key, {}, Loss{claim.key, gone, true, why, by}, {}, {}};
  };
  const auto now = BootClock::now();
  const Deadline end = lease.held.grant.lease.valid_until;
  if (now >= end) {
    return lost(false, "its lease ended " + human_duration(passed_since(end)) +
                           " ago, while dlock was suspended or stopped");
  }
  const Deadline until = std::min(end, later(now, time_to_answer(lease)));
  try {
    const auto renewed =
        store_.renew(claim, {.granted = lease.held.grant.fence}, {until, stop_fd_});
    if (!renewed.grant) {
      return lost(true, gone_text(store_, renewed.evicted_by), renewed.evicted_by);
    }
    const auto margin = std::exchange(lease.held.grant.margin, renewed.grant->margin);
    lease.held.grant.lease = renewed.grant->lease;
    lease.held.grant.confirmed = true;
    lease.held.failing_since.reset();
    lease.held.clock_jump = std::chrono::nanoseconds(0);
    lease.next = later(now, pause_after_success(lease.held));
    const auto& now_on = renewed.grant->margin;
    const bool same = now_on && margin && now_on->held == margin->held && !now_on->misnamed;
    return RenewalOutcome{claim.key,
                          same ? std::nullopt : now_on,
                          {},
                          renewed.stop_asked_by,
                          renewed.grant->predecessor};
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::interrupted) return failed(lease, now, error);
    if (!lease.held.failing_since) lease.held.failing_since = now;
    return std::nullopt;
  } catch (const std::exception& error) {
    return failed(lease, now, Error(ErrorKind::host_refused, error.what()));
  }
}

RenewalOutcome RenewalSchedule::failed(Upkept& lease, Deadline since, const Error& error) {
  const auto now = BootClock::now();
  const LockKey& key = lease.held.claim.key;
  if (!lease.held.failing_since) lease.held.failing_since = since;
  const bool away = error.kind() == ErrorKind::unavailable && !is_reply(error.cause());
  std::string why = (away ? "server unreachable since " : "not renewed since ") +
                    iso8601(wall_at(*lease.held.failing_since)) + ": " + error.what();
  const auto jump = std::exchange(lease.held.clock_jump, {});
  if (jump > std::chrono::nanoseconds(0)) {
    why = "the clock of this host was set forward by " +
          human_duration(std::chrono::floor<milliseconds>(jump)) +
          ", so that its lease may have passed; " + why;
    lease.held.grant.lease.valid_until -= jump;
  }
  auto pause = pause_after_failure(lease.held);
  if (!lease.held.grant.confirmed) {
    pause = std::min(pause, pause_before_confirming);
    lease.confirm_within *= 8;
  }
  lease.next = std::min(later(now, pause), lease.held.grant.lease.valid_until);
  return {key, {}, Loss{key, false, false, why, {}}, {}, {}};
}

Deadline RenewalSchedule::safe_until() const {
  Deadline safe = never;
  for (const Upkept& lease : leases_) safe = std::min(safe, lease.held.grant.lease.valid_until);
  return safe;
}

bool RenewalSchedule::confirmed() const {
  return std::all_of(leases_.begin(), leases_.end(),
                     [](const Upkept& lease) { return lease.held.grant.confirmed; });
}

LeaseRenewer::LeaseRenewer(Store& store, std::vector<Held> held,
                           std::atomic<BootClock::rep>* safe_until, Begin begin_at)
    : store_(store),
      clock_set_(notice_clock_set()),
      wall_ahead_(wall_against_boot()),
      doubts_(epoll_create1(EPOLL_CLOEXEC)),
      safe_until_(safe_until != nullptr ? safe_until : &own_safe_until_),
      schedule_(store, std::move(held), stop_.fd()) {
  epoll_event clock_set{EPOLLIN, {}};
  epoll_ctl(doubts_.get(), EPOLL_CTL_ADD, clock_set_.get(), &clock_set);
  watch_store();
  promise();
  if (begin_at == Begin::now || schedule_.next_due() <= BootClock::now()) begin();
}

LeaseRenewer::~LeaseRenewer() {
  if (!stop_.raised()) stop();
  if (thread_.joinable()) thread_.join();
}

void LeaseRenewer::start() {
  if (thread_.joinable()) return;
  if (safe_until() == never) {
    take_doubts();
    return renew_next();
  }
  try {
    begin();
  } catch (const Error& error) {
    take_doubts();
    report(schedule_.cannot_renew(error));
  }
}

void LeaseRenewer::begin() {
  thread_ = start_thread([this] {
    try {
      work();
    } catch (const std::exception& error) {
      const std::lock_guard in_use(store_in_use_);
      if (stop_.raised()) return;
      auto failed = schedule_.cannot_renew(Error(ErrorKind::bug, error.what()));
      failed.loss->final = true;
      report(failed);
    }
  });
}

/// The kernel reports each close once (EPOLLET); descriptors that are watched already stay watched.
void LeaseRenewer::watch_store() {
  if (auto* here = store_.host_view()) {
    epoll_event news{EPOLLIN, {}};
    epoll_ctl(doubts_.get(), EPOLL_CTL_ADD, here->news_fd(), &news);
  }
  for (const int fd : store_.connections()) {
    epoll_event closed{EPOLLRDHUP | EPOLLET, {}};
    epoll_ctl(doubts_.get(), EPOLL_CTL_ADD, fd, &closed);
  }
}

void LeaseRenewer::take_doubts() {
  std::uint64_t expirations = 0;
  (void)!read(clock_set_.get(), &expirations, sizeof expirations);
  const auto before = std::exchange(wall_ahead_, wall_against_boot());
  schedule_.doubt(wall_ahead_ - before);
  if (auto* here = store_.host_view(); here != nullptr && readable(here->news_fd())) {
    here->take_news();
    schedule_.renew_now();
  }
  epoll_event event{};
  while (epoll_wait(doubts_.get(), &event, 1, 0) > 0 && event.events != EPOLLIN) {
    schedule_.connection_closed();
  }
}

std::optional<Loss> LeaseRenewer::loss() const {
  const std::lock_guard guard(mutex_);
  return loss_;
}

void LeaseRenewer::renew_now(milliseconds at_most) {
  std::unique_lock guard(mutex_);
  renewal_asked_ = true;
  guard.unlock();
  if (thread_.joinable()) {
    renew_now_.raise();
  } else {
    schedule_.renew_now();
    start();
  }
  guard.lock();
  const auto done = [this] { return !renewal_asked_ || !thread_.joinable(); };
  renewed_.wait_for(guard, at_most, done);
}

std::vector<Held> LeaseRenewer::stop() {
  // Wait a little for a confirmation in progress: after an interruption the release would need a
  // new connection, which takes longer than the reply.
  if (thread_.joinable() && !confirmed_) {
    constexpr milliseconds longest_reply{200};
    std::unique_lock guard(mutex_);
    renewed_.wait_for(guard, longest_reply, [this] { return confirmed_ || lost_.raised(); });
  }
  stop_.raise();
  const std::lock_guard in_use(store_in_use_);
  return schedule_.take();
}

void LeaseRenewer::work() {
  std::unique_lock in_use(store_in_use_);
  while (!stop_.raised()) {
    const Deadline due = schedule_.next_due();
    in_use.unlock();
    pollfd fds[] = {
        {stop_.fd(), POLLIN, 0}, {renew_now_.fd(), POLLIN, 0}, {doubts_.get(), POLLIN, 0}};
    poll_until(fds, due);
    in_use.lock();
    if (stop_.raised()) return;
    take_doubts();
    if (renew_now_.raised()) {
      renew_now_.clear();
      schedule_.renew_now();
    }
    renew_next();
    const std::lock_guard guard(mutex_);
    if (schedule_.next_due() > BootClock::now() && !renew_now_.raised()) renewal_asked_ = false;
    renewed_.notify_all();
  }
}

/// Renews only one hold, because another may take seconds, and the clock may be set meanwhile.
void LeaseRenewer::renew_next() {
  if (const auto renewal = schedule_.renew_next()) report(*renewal);
  watch_store();
}

void LeaseRenewer::report(const RenewalOutcome& renewal) {
  const std::lock_guard guard(mutex_);
  const auto& [key, margin, loss, stop_asked_by, predecessor] = renewal;
  if (loss) {
    report_loss(*loss);
  } else if (!lost_.raised()) {
    loss_.reset();
  }
  if (margin) {
    changed_margins_.emplace_back(key, *margin);
    news_.raise();
  }
  if (stop_asked_by && !stop_request_) {
    stop_request_ = StopRequest{key, *stop_asked_by};
    news_.raise();
  }
  if (predecessor) {
    predecessors_.emplace_back(key, *predecessor);
    news_.raise();
  }
  // Only after report_loss(): if the lease has expired already, this failure is the reason.
  promise();
}

void LeaseRenewer::promise() {
  const auto safe_until = schedule_.safe_until().time_since_epoch().count();
  if (safe_until_->exchange(safe_until) > safe_until) news_.raise();
  confirmed_ = schedule_.confirmed();
  renewed_.notify_all();
}

std::vector<std::pair<LockKey, QuorumMargin>> LeaseRenewer::take_margins() {
  const std::lock_guard guard(mutex_);
  return std::exchange(changed_margins_, {});
}

std::vector<std::pair<LockKey, Predecessor>> LeaseRenewer::take_predecessors() {
  const std::lock_guard guard(mutex_);
  return std::exchange(predecessors_, {});
}

std::optional<StopRequest> LeaseRenewer::take_stop_request() {
  const std::lock_guard guard(mutex_);
  if (!stop_request_ || std::exchange(stop_request_taken_, true)) return std::nullopt;
  return stop_request_;
}

void LeaseRenewer::report_loss(const Loss& loss) {
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
