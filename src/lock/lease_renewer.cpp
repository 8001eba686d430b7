#include "lock/lease_renewer.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/escape.hpp"
#include "base/thread.hpp"

namespace dlock {

milliseconds usual_grace(milliseconds ttl) { return std::min(milliseconds(5000), ttl / 3); }

std::string lost_text(const LockKey& key, const std::string& reason) {
  return "lost " + escaped(key.text) + ": " + reason;
}

namespace {

/// What was told of them already.
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

/// Each end is reported once (EPOLLET), and what is watched already stays so.
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
  // The next holder waits longer for a connection that is broken off than for a reply.
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

/// Whether there is nothing to do for so long that a thread is better started anew.
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
  // First, for copying a text may fail; who asks for it waits for the mutex.
  if (loss.final) {
    lost_.raise();
    news_.raise();
  }
  // What made the renewals fail says more than that they failed until the end.
  if (!loss.final || loss.gone || !loss_) loss_ = loss;
  loss_->final = loss.final;
}

}  // namespace dlock
