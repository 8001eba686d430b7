#include "attach/attached_holds.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/wait.hpp"
#include "lock/release.hpp"

namespace dlock {
namespace {

auto by_key(const LockKey& key) {
  return [&key](const Held& held) { return held.claim.key == key; };
}

}  // namespace

AttachedHolds::AttachedHolds(Store& store, std::vector<Held> held)
    : store_(store), held_(std::move(held)) {
  resume();
}

bool AttachedHolds::has_leases() const {
  return !held_.empty() && needs_renewal(store_, held_.front().claim);
}

int AttachedHolds::fd() const {
  if (renewer_) return renewer_->news_fd();
  return held_.empty() ? -1 : store_.host_view()->news_fd();
}

Deadline AttachedHolds::warning_due() const {
  const Deadline end = safe_until();
  return end == never ? never : end - usual_grace(held_.front().claim.ttl);
}

Deadline AttachedHolds::look_by() const {
  // The renewer reports no news when renewals succeed again.
  constexpr milliseconds pause_in_trouble{200};
  if (warned_ && renewer_) return later(BootClock::now(), pause_in_trouble);
  return std::min(warn_at(), look_again_);
}

std::optional<std::string> AttachedHolds::look() {
  if (has_leases()) return look_at_leases();
  if (BootClock::now() < look_again_ && !readable(fd())) return std::nullopt;
  return look_at_processes();
}

std::optional<std::string> AttachedHolds::look_at_leases() {
  renewer_->take_news();
  if (!renewer_->lost()) {
    if (BootClock::now() < warning_due()) warned_ = false;
    return BootClock::now() < warn_at() ? std::nullopt : warn();
  }
  const auto loss = renewer_->loss();
  pause();
  const auto held = std::find_if(held_.begin(), held_.end(), by_key(loss->key));
  const bool released = may_have_been_released(loss->key);
  if (!loss->gone) ended_.push_back(*held);
  forget(loss->key);
  resume();
  if (released) return std::nullopt;
  return lost(loss->key, loss->reason);
}

std::string AttachedHolds::lost(const LockKey& key, const std::string& why) {
  lost_ = true;
  return lost_text(key, why);
}

/// Reports that a lease is near its end and could not be renewed.
std::optional<std::string> AttachedHolds::warn() {
  const auto trouble = renewer_->loss();
  std::optional<LockKey> ending;
  // A renewal that has no answer yet must not delay the warning.
  if (leaving_.empty()) {
    ending = trouble ? trouble->key : held_.front().claim.key;
  } else {
    ending = give_up_leaving();
  }
  if (!ending) return std::nullopt;
  warned_ = true;
  return lost_text(*ending, trouble ? trouble->reason : "not renewed in time");
}

/// Stops to renew the locks that are near their end and may have been released. Returns another key
/// that is near its end.
std::optional<LockKey> AttachedHolds::give_up_leaving() {
  std::optional<LockKey> ending;
  pause();
  for (std::size_t i = 0; i < held_.size();) {
    const Claim claim = held_[i].claim;
    const auto stop_at = held_[i].grant.lease.valid_until - usual_grace(claim.ttl);
    const bool ends = stop_at <= BootClock::now();
    if (ends && may_have_been_released(claim.key)) {
      ended_.push_back(held_[i]);
      forget(claim.key);
      continue;
    }
    if (ends) ending = claim.key;
    ++i;
  }
  resume();
  return ending;
}

std::optional<std::string> AttachedHolds::look_at_processes() {
  look_again_ = later(BootClock::now(), look_at_files_every);
  store_.host_view()->take_news();
  for (std::size_t i = 0; i < held_.size();) {
    const Claim claim = held_[i].claim;
    const auto renewed = look_at_hold(store_, claim);
    if (!renewed) look_again_ = later(BootClock::now(), pause_after_trouble);
    if (!renewed || renewed->grant) {
      ++i;
      continue;
    }
    const bool released = may_have_been_released(claim.key);
    forget(claim.key);
    if (released) continue;
    look_again_ = BootClock::now();
    return lost(claim.key, gone_text(store_, renewed->evicted_by));
  }
  return std::nullopt;
}

bool AttachedHolds::about_to_be_released(const LockKey& key) {
  if (std::none_of(held_.begin(), held_.end(), by_key(key))) return false;
  leaving_.insert(key);
  return true;
}

void AttachedHolds::release_ended(const LockKey& key, ReleaseEnd end) {
  if (end == ReleaseEnd::refused) leaving_.extract(key);
  if (end != ReleaseEnd::released) return;
  pause();
  forget(key);
  resume();
}

void AttachedHolds::release(milliseconds at_most) {
  pause();
  std::vector<Held> all = ended_;
  all.insert(all.end(), held_.begin(), held_.end());
  // Leases that have ended need no release, but the engine may notice their end late.
  constexpr milliseconds least{200};
  Deadline end{};
  for (const Held& held : all) end = std::max(end, held.grant.lease.valid_until);
  release_all(store_, all, std::min(at_most, std::max(least, left_until(end))));
}

void AttachedHolds::forget(const LockKey& key) {
  leaving_.erase(key);
  std::erase_if(held_, by_key(key));
}

void AttachedHolds::pause() {
  if (!renewer_) return;
  held_ = renewer_->stop();
  renewer_.reset();
}

void AttachedHolds::resume() {
  if (has_leases()) {
    renewer_.emplace(store_, held_);
  } else if (!held_.empty()) {
    look_again_ = std::min(look_again_, later(BootClock::now(), look_at_files_every));
  }
}

}  // namespace dlock
