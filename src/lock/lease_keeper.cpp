#include "lock/lease_keeper.hpp"

#include <algorithm>
#include <system_error>

#include "base/duration.hpp"
#include "base/error.hpp"

namespace dlock {
namespace {

constexpr int renewals_a_lease = 3;

milliseconds pause_after_failure(milliseconds ttl) {
  return std::clamp(ttl / 30, milliseconds(10), milliseconds(1000));
}

}  // namespace

milliseconds request_timeout(milliseconds ttl) {
  constexpr milliseconds silence_of_a_dead_server{5000};
  return std::min(silence_of_a_dead_server, ttl / 6);
}

LeaseKeeper::LeaseKeeper(Store& store, std::vector<Held> held) : store_(store) {
  const auto now = BootClock::now();
  for (Held& each : held) {
    const auto rest = each.grant.lease.valid_until - now;
    const auto due =
        each.grant.lease.valid_until == never
            ? never
            : later(now, rest - each.claim.ttl * (renewals_a_lease - 1) / renewals_a_lease);
    leases_.push_back({std::move(each), due, std::nullopt});
  }
  update_safe_until();
  try {
    thread_ = std::thread([this] {
      try {
        work();
      } catch (const std::exception& error) {
        note(leases_.front(), false, error.what(), true);
      }
    });
  } catch (const std::system_error& error) {
    throw Error(Trouble::host_refused, std::string("cannot start a thread: ") + error.what());
  }
}

LeaseKeeper::~LeaseKeeper() { stop(); }

std::optional<Loss> LeaseKeeper::loss() const {
  const std::lock_guard guard(mutex_);
  return loss_;
}

void LeaseKeeper::renew_now(milliseconds at_most) {
  std::unique_lock guard(mutex_);
  ++hurries_;
  hurry_.raise();
  renewed_.wait_for(guard, at_most, [this] { return hurries_ == 0; });
}

std::vector<Held> LeaseKeeper::stop() {
  stop_.raise();
  if (thread_.joinable()) thread_.join();
  std::vector<Held> held;
  for (Upkept& lease : leases_) held.push_back(std::move(lease.held));
  leases_.clear();
  return held;
}

void LeaseKeeper::work() {
  while (true) {
    pollfd fds[] = {{stop_.fd(), POLLIN, 0}, {hurry_.fd(), POLLIN, 0}};
    poll_until(fds, next_due());
    if (stop_.raised()) return;
    const bool all = hurry_.raised();
    hurry_.clear();
    for (Upkept& lease : leases_) {
      const bool kept_up = lease.next != never;
      if (kept_up && (all || lease.next <= BootClock::now())) renew(lease);
      if (stop_.raised()) return;
    }
    if (all) {
      const std::lock_guard guard(mutex_);
      hurries_ = 0;
      renewed_.notify_all();
    }
  }
}

void LeaseKeeper::renew(Upkept& lease) {
  const Claim& claim = lease.held.claim;
  const auto now = BootClock::now();
  const Deadline end = lease.held.grant.lease.valid_until;
  if (now >= end) {
    const auto since = lease.failing_since.value_or(end);
    const auto failing = std::chrono::floor<milliseconds>(now - since);
    note(lease, false, "not renewed for " + human_duration(failing), true);
    lease.next = never;
    return;
  }
  const Deadline until = std::min(end, later(now, request_timeout(claim.ttl)));
  try {
    const auto renewed = store_.renew(claim.key, claim.token, std::nullopt, {until, stop_.fd()});
    if (!renewed) {
      note(lease, true, store_.name() + " no longer has it", true);
      lease.next = never;
      return;
    }
    lease.held.grant.lease = renewed->lease;
    lease.failing_since.reset();
    lease.next = later(now, claim.ttl / renewals_a_lease);
    update_safe_until();
    const std::lock_guard guard(mutex_);
    if (!lost_.raised()) loss_.reset();
  } catch (const Error& error) {
    if (error.trouble() != Trouble::interrupted) failed(lease, error.what());
  } catch (const std::exception& error) {
    failed(lease, error.what());
  }
}

void LeaseKeeper::failed(Upkept& lease, const std::string& why) {
  const auto now = BootClock::now();
  if (!lease.failing_since) lease.failing_since = now;
  note(lease, false, why, false);
  lease.next = std::min(later(now, pause_after_failure(lease.held.claim.ttl)),
                        lease.held.grant.lease.valid_until);
}

void LeaseKeeper::note(const Upkept& lease, bool gone, const std::string& why, bool final) {
  const std::lock_guard guard(mutex_);
  if (lost_.raised()) return;
  // What made the renewals fail says more than that they failed until the end.
  if (!final || gone || !loss_) loss_ = Loss{lease.held.claim.key, gone, final, why};
  loss_->final = final;
  if (final) lost_.raise();
}

Deadline LeaseKeeper::next_due() const {
  Deadline due = never;
  for (const Upkept& lease : leases_) due = std::min(due, lease.next);
  return due;
}

void LeaseKeeper::update_safe_until() {
  Deadline safe = never;
  for (const Upkept& lease : leases_) safe = std::min(safe, lease.held.grant.lease.valid_until);
  safe_until_ = safe.time_since_epoch().count();
}

}  // namespace dlock
