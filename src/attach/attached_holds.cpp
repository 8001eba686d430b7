#include "attach/attached_holds.hpp"

#include <algorithm>
#include <utility>

#include "base/wait.hpp"
#include "lock/release.hpp"
#include "output/sentences.hpp"

namespace dlock {
namespace {

auto find(const LockKey& key, std::vector<Held>& holds) {
  return std::find_if(holds.begin(), holds.end(),
                      [&](const Held& held) { return held.claim.key == key; });
}

void move_hold(const LockKey& key, std::vector<Held>& from, std::vector<Held>& to) {
  const auto found = find(key, from);
  if (found == from.end()) return;
  to.push_back(std::move(*found));
  from.erase(found);
}

}  // namespace

AttachedHolds::AttachedHolds(Store& store, std::vector<Held> held)
    : store_(store), held_(std::move(held)) {
  resume();
}

Deadline AttachedHolds::warning_due() const {
  const Deadline end = safe_until();
  return end == never ? never : end - usual_grace(held_.front().claim.ttl);
}

Deadline AttachedHolds::look_by() const {
  if (!renewer_) return never;
  // The renewer reports no news when renewals succeed again.
  constexpr milliseconds pause_in_trouble{200};
  const Deadline look = warned_ ? later(BootClock::now(), pause_in_trouble) : warning_due();
  return std::min(look, renewer_->start_by());
}

std::optional<std::string> AttachedHolds::look() {
  if (!renewer_) return std::nullopt;
  renewer_->take_news();
  renewer_->start();
  const bool is_lost = renewer_->lost();
  const auto loss = renewer_->loss();
  if (!is_lost) {
    const bool in_time = BootClock::now() < warning_due();
    if (std::exchange(warned_, !in_time) || in_time) return std::nullopt;
    // A renewal that has no answer yet must not delay the warning.
    return loss ? lost_text(loss->key, loss->reason)
                : lost_text(held_.front().claim.key, "not renewed in time");
  }
  pause();
  move_hold(loss->key, held_, ended_);
  resume();
  if (loss->gone) released(loss->key);
  // The other locks may be lost for the same reason, so renew them now.
  if (renewer_) renewer_->renew_now({});
  lost_ = true;
  return lost_text(loss->key, loss->reason);
}

std::optional<StopRequest> AttachedHolds::take_stop_request() {
  auto request = renewer_ ? renewer_->take_stop_request() : std::nullopt;
  // Each new renewer hears of the request again.
  if (!request || std::exchange(stop_asked_, true)) return std::nullopt;
  return request;
}

bool AttachedHolds::about_to_be_released(const LockKey& key) {
  if (find(key, held_) != held_.end()) {
    pause();
    move_hold(key, held_, ended_);
    resume();
  }
  return find(key, ended_) != ended_.end();
}

void AttachedHolds::released(const LockKey& key) {
  // Another client, whose release was refused meanwhile, may have brought it back.
  about_to_be_released(key);
  std::erase_if(ended_, [&](const Held& held) { return held.claim.key == key; });
}

void AttachedHolds::not_released(const LockKey& key) {
  const auto found = find(key, ended_);
  // If the lease has expired, look() reported the loss, or the script needs the lock no more.
  if (found == ended_.end() || found->grant.lease.valid_until <= BootClock::now()) return;
  pause();
  move_hold(key, ended_, held_);
  resume();
}

void AttachedHolds::release(milliseconds at_most) {
  pause();
  std::vector<Held> all = ended_;
  all.insert(all.end(), held_.begin(), held_.end());
  // Expired leases need no release, but on the engine they may expire a little later than here.
  constexpr milliseconds least{200};
  Deadline end{};
  for (const Held& held : all) end = std::max(end, held.grant.lease.valid_until);
  release_all(store_, all, std::min(at_most, std::max(least, left_until(end))));
}

void AttachedHolds::pause() {
  if (!renewer_) return;
  held_ = renewer_->stop();
  renewer_.reset();
}

void AttachedHolds::resume() {
  if (held_.empty()) return;
  renewer_.emplace(store_, held_, nullptr, LeaseRenewer::Begin::when_due);
  renewer_->start();
}

}  // namespace dlock
