#include "lock/lease_keeper.hpp"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/duration.hpp"
#include "base/escape.hpp"

namespace dlock {
namespace {

constexpr int renewals_a_lease = 3;

/// Less is how NTP corrects a clock when it begins.
constexpr std::chrono::seconds noteworthy_step{1};

/// How long a hold that may be over already is asked for before it is given up.
constexpr milliseconds longest_doubt{500};

milliseconds pause_after_failure(milliseconds ttl) {
  return std::clamp(ttl / 30, milliseconds(10), milliseconds(1000));
}

}  // namespace

milliseconds request_timeout(milliseconds ttl) {
  return std::min(silence_of_a_dead_server, ttl / 6);
}

milliseconds usual_grace(milliseconds ttl) { return std::min(milliseconds(5000), ttl / 3); }

std::string lost_text(const LockKey& key, const std::string& reason) {
  return "lost " + escaped(key.text) + ": " + reason;
}

LeaseKeeper::LeaseKeeper(Store& store, std::vector<Held> held,
                         std::atomic<BootClock::rep>* safe_until)
    : store_(store), safe_until_(safe_until != nullptr ? safe_until : &own_safe_until_) {
  const auto now = BootClock::now();
  for (Held& each : held) {
    const auto rest = each.grant.lease.valid_until - now;
    auto due = never;
    if (each.grant.lease.valid_until != never) {
      due = later(now, rest - each.claim.ttl * (renewals_a_lease - 1) / renewals_a_lease);
      if (each.hidden > std::chrono::nanoseconds(0) || !each.grant.confirmed) due = now;
    }
    leases_.push_back({std::move(each), due});
  }
  update_confirmed();
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
    pollfd fds[] = {{stop_.fd(), POLLIN, 0}, {hurry_.fd(), POLLIN, 0}, {steps_.fd(), POLLIN, 0}};
    poll_until(fds, next_due());
    if (stop_.raised()) return;
    doubt(steps_.taken());
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

void LeaseKeeper::doubt(std::chrono::nanoseconds step) {
  if (std::chrono::abs(step) < noteworthy_step) return;
  for (Upkept& lease : leases_) {
    if (lease.next == never) continue;
    lease.held.hidden += std::max(step, std::chrono::nanoseconds(0));
    lease.next = BootClock::now();
  }
}

void LeaseKeeper::ended(Upkept& lease) {
  const auto over =
      std::chrono::floor<milliseconds>(BootClock::now() - lease.held.grant.lease.valid_until);
  note(lease, false,
       "its lease ended " + human_duration(over) + " ago, while dlock was suspended or stopped",
       true);
  lease.next = never;
}

void LeaseKeeper::renew(Upkept& lease) {
  const Claim& claim = lease.held.claim;
  const auto now = BootClock::now();
  const Deadline end = lease.held.grant.lease.valid_until;
  if (now >= end) return ended(lease);
  const auto patience =
      later(now, lease.held.hidden) < end ? request_timeout(claim.ttl) : longest_doubt;
  const Deadline until = std::min({end, later(now, patience)});
  try {
    const auto renewed = store_.renew(claim.key, claim.token, std::nullopt, {until, stop_.fd()});
    if (!renewed) {
      note(lease, true, gone_from(store_), true);
      lease.next = never;
      return;
    }
    lease.held.grant.lease = renewed->lease;
    lease.held.grant.confirmed = true;
    lease.held.failing_since.reset();
    lease.held.hidden = std::chrono::nanoseconds(0);
    lease.next = later(now, claim.ttl / renewals_a_lease);
    update_safe_until();
    update_confirmed();
    const std::lock_guard guard(mutex_);
    if (!lost_.raised()) loss_.reset();
  } catch (const Error& error) {
    if (error.trouble() != Trouble::interrupted) failed(lease, now, error);
  } catch (const std::exception& error) {
    failed(lease, now, Error(Trouble::host_refused, error.what()));
  }
}

void LeaseKeeper::failed(Upkept& lease, Deadline since, const Error& error) {
  const auto now = BootClock::now();
  if (!lease.held.failing_since) lease.held.failing_since = since;
  const bool away = error.trouble() == Trouble::unavailable;
  std::string why = (away ? "server unreachable since " : "not renewed since ") +
                    iso8601(wall_at(*lease.held.failing_since)) + ": " + error.what();
  if (lease.held.hidden > std::chrono::nanoseconds(0)) {
    why = "the clock of this host was set forward by " +
          human_duration(std::chrono::floor<milliseconds>(lease.held.hidden)) +
          ", so that its lease may have passed; " + why;
    lease.held.grant.lease.valid_until -= std::exchange(lease.held.hidden, {});
    update_safe_until();
  }
  note(lease, false, why, false);
  lease.next = std::min(later(now, pause_after_failure(lease.held.claim.ttl)),
                        lease.held.grant.lease.valid_until);
}

void LeaseKeeper::note(const Upkept& lease, bool gone, const std::string& why, bool final) {
  const std::lock_guard guard(mutex_);
  if (lost_.raised()) return;
  // First, for making a text may fail; who asks for it waits for the mutex.
  if (final) {
    lost_.raise();
    news_.raise();
  }
  // What made the renewals fail says more than that they failed until the end.
  if (!final || gone || !loss_) loss_ = Loss{lease.held.claim.key, gone, final, why};
  loss_->final = final;
}

Deadline LeaseKeeper::next_due() const {
  Deadline due = never;
  for (const Upkept& lease : leases_) due = std::min(due, lease.next);
  return due;
}

void LeaseKeeper::update_confirmed() {
  confirmed_ = std::all_of(leases_.begin(), leases_.end(),
                           [](const Upkept& lease) { return lease.held.grant.confirmed; });
}

void LeaseKeeper::update_safe_until() {
  Deadline safe = never;
  for (const Upkept& lease : leases_) safe = std::min(safe, lease.held.grant.lease.valid_until);
  const auto before = safe_until_->exchange(safe.time_since_epoch().count());
  if (before > safe.time_since_epoch().count()) news_.raise();
}

}  // namespace dlock
