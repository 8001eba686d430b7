#include "commands/held_locks.hpp"

#include <unistd.h>

#include <algorithm>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"
#include "commands/lock_acquirer.hpp"
#include "lock/release.hpp"

namespace dlock {
namespace {

constexpr milliseconds longest_release{2000};

/// A lock that was handed over by a message has a short lease; the child gets a third of it to end.
milliseconds unconfirmed_grace(const Grant& grant) { return grant.lease.length / 3; }

/// A server that is busy with other clients is well: it is asked for as long as the lease lasts.
Renewed renew_while_busy(Store& store, const Held& held) {
  constexpr milliseconds pause{20};
  while (true) {
    try {
      return store.renew(held.claim, {.granted = held.grant.fence},
                         {later(BootClock::now(), request_timeout(held.claim.ttl)), -1});
    } catch (const Error& error) {
      const bool again = says_later(error.cause());
      if (!again || BootClock::now() >= held.grant.lease.valid_until) throw;
      sleep_until(later(BootClock::now(), pause), -1);
    }
  }
}

constexpr char ran_out[] = "its lease ran out while dlock was suspended or stopped";
constexpr char not_in_time[] = "it was not renewed in time, as dlock was suspended or stopped";

}  // namespace

/// Reports the renewer's fd and deadlines to the supervisor, for holds with leases.
class HeldLocks::LeaseMonitor final : public StopSource {
 public:
  LeaseMonitor(HeldLocks& holding, milliseconds unconfirmed_grace)
      : holding_(holding), renewer_(*holding.renewer_), unconfirmed_grace_(unconfirmed_grace) {}
  int fd() const override { return renewer_.news_fd(); }
  Deadline look_by() const override { return renewer_.start_by(); }
  bool lost() const override {
    renewer_.take_news();
    renewer_.start();
    for (const auto& [key, margin] : renewer_.take_margins()) tell(key, margin);
    return renewer_.lost();
  }
  void keep_by_itself() const override {
    // Stored now: if a server answers during the grace, the renewer forgets the loss.
    holding_.loss_ = renewer_.loss();
    renewer_.start_to_stay();
  }
  Deadline safe_until() const override { return renewer_.safe_until(); }
  milliseconds grace(milliseconds usual) const override {
    return renewer_.confirmed() ? usual : std::min(usual, unconfirmed_grace_);
  }

 private:
  void tell(const LockKey& key, const QuorumMargin& margin) const;

  HeldLocks& holding_;
  LeaseRenewer& renewer_;
  milliseconds unconfirmed_grace_;
};

void HeldLocks::LeaseMonitor::tell(const LockKey& key, const QuorumMargin& margin) const {
  if (takes_a_line(STDERR_FILENO)) report_margin(holding_.log_, key, margin);
}

/// The same for holds that live with this process. They end early only if they are evicted, which
/// the engine reports, or if their files are removed.
class HeldLocks::Listening final : public StopSource {
 public:
  explicit Listening(HeldLocks& holding) : holding_(holding) {}
  int fd() const override { return holding_.store_.host_view()->news_fd(); }
  Deadline look_by() const override { return look_by_; }
  bool lost() const override;
  Deadline safe_until() const override { return never; }

 private:
  HeldLocks& holding_;
  mutable Deadline look_by_ = later(BootClock::now(), look_at_files_every);
};

bool HeldLocks::Listening::lost() const {
  holding_.store_.host_view()->take_news();
  const auto out = holding_.is_evicted();
  look_by_ = later(BootClock::now(), out ? look_at_files_every : pause_after_trouble);
  return out.value_or(false);
}

HeldLocks::HeldLocks(Store& store, std::vector<Held> held, const Log& log)
    : store_(store), held_(std::move(held)), log_(log) {}

HeldLocks::~HeldLocks() = default;

bool HeldLocks::needs_renewal() const {
  return std::any_of(held_.begin(), held_.end(),
                     [this](const Held& held) { return dlock::needs_renewal(store_, held.claim); });
}

bool HeldLocks::ready_to_start(milliseconds grace) {
  for (Held& held : held_) {
    const Claim& claim = held.claim;
    const milliseconds needed =
        held.grant.confirmed ? grace + claim.ttl / 3 : unconfirmed_grace(held.grant);
    const bool lasts = later(BootClock::now(), needed) < held.grant.lease.valid_until;
    if (lasts) continue;
    const auto renewed = renew_while_busy(store_, held);
    if (!renewed.grant) {
      lost(claim, renewed.evicted_by);
      return false;
    }
    held.grant = *renewed.grant;
  }
  return true;
}

bool HeldLocks::command_started(pid_t group) {
  for (const Held& held : held_) {
    if (store_.host_view()->command_started(held.claim, group)) continue;
    const auto renewed = look_at_hold(store_, held.claim);
    lost(held.claim, renewed ? renewed->evicted_by : std::nullopt);
    return false;
  }
  return true;
}

void HeldLocks::lost(const Claim& claim, const std::optional<Who>& evicted_by) {
  loss_ = Loss{claim.key, true, true, gone_from(store_, evicted_by), evicted_by};
}

std::optional<Who> HeldLocks::evicted_by() const {
  return loss_ ? loss_->evicted_by : std::nullopt;
}

Deadline HeldLocks::granted_until() const {
  Deadline until = never;
  for (const Held& held : held_) until = std::min(until, held.grant.lease.valid_until);
  return until;
}

void HeldLocks::start_renewing(pid_t command, std::atomic<BootClock::rep>* safe_until) {
  if (needs_renewal()) {
    for (Held& held : held_) held.claim.who.command_pid = command;
  } else {
    source_ = std::make_unique<Listening>(*this);
    return;
  }
  milliseconds grace = milliseconds::max();
  for (const Held& held : held_) {
    if (!held.grant.confirmed) grace = std::min(grace, unconfirmed_grace(held.grant));
  }
  renewer_ =
      std::make_unique<LeaseRenewer>(store_, held_, safe_until, LeaseRenewer::Begin::when_due);
  source_ = std::make_unique<LeaseMonitor>(*this, grace);
}

std::optional<bool> HeldLocks::is_evicted() {
  std::optional<bool> out = false;
  for (const Held& held : held_) {
    const auto renewed = look_at_hold(store_, held.claim);
    if (!renewed) out.reset();
    if (!renewed || renewed->grant) continue;
    lost(held.claim, renewed->evicted_by);
    return true;
  }
  return out;
}

void HeldLocks::renew_now() {
  if (renewer_) renewer_->renew_now(request_timeout(held_.front().claim.ttl));
}

std::string HeldLocks::stop_text() const {
  const std::string keys =
      joined(held_, ", ", [](const Held& held) { return escaped(held.claim.key.text); });
  if (!renewer_) return "stopped: " + keys + " stays held until COMMAND has ended";
  return "stopped: nobody renews " + keys + " meanwhile; unless continued within " +
         human_duration(left_until(renewer_->safe_until())) +
         ", others may hold it, and COMMAND is ended once continued";
}

const StopSource* HeldLocks::stop_source() const { return source_.get(); }

std::string HeldLocks::loss_text() const {
  const auto loss = renewer_ ? renewer_->loss() : loss_;
  return loss ? lost_text(loss->key, loss->reason) : std::string("lost the lock: ") + not_in_time;
}

void HeldLocks::stop_renewing(bool lost) {
  if (!renewer_) return;
  if (const auto loss = renewer_->loss(); loss || !lost) loss_ = loss;
  held_ = renewer_->stop();
  source_.reset();
  renewer_.reset();
  const auto now = BootClock::now();
  for (const Held& held : held_) {
    if (!lost || loss_) return;
    const auto& [length, end] = held.grant.lease;
    // A renewal starts with two thirds of the lease left, unless dlock was stopped at that time.
    if (held.failing_since && *held.failing_since < end - length / 3) {
      loss_ =
          Loss{held.claim.key, false, true,
               store_.name() + " has not answered since " + iso8601(wall_at(*held.failing_since))};
    } else if (held.failing_since || end <= now) {
      loss_ = Loss{held.claim.key, false, true, end <= now ? ran_out : not_in_time};
    }
  }
}

std::string HeldLocks::outlive_by(const std::vector<Survivor>& survivors) {
  if (needs_renewal()) return "and ends with its lease";
  // A survivor may hide its environment and have left the process group of COMMAND, so its own
  // group is recorded.
  const pid_t group = survivors.front().group;
  bool held = true;
  for (const Held& each : held_) {
    held = (group <= 0 || store_.host_view()->command_started(each.claim, group)) && held;
  }
  if (!held) return "but was lost before";
  return survivors.size() == 1 ? "and ends when that does" : "and ends when they do";
}

HeldLocks::Outcome HeldLocks::release(ReleaseMode mode) {
  auto worst = Outcome::released;
  // Reported after all releases: a blocked stderr must not delay the next release.
  std::vector<std::string> troubles;
  for (const Held& held : held_) worst = std::max(worst, release(held, mode, troubles));
  for (const std::string& trouble : troubles) log_.error(trouble);
  report_troubles(log_, store_);
  return worst;
}

HeldLocks::Outcome HeldLocks::release(const Held& held, ReleaseMode mode,
                                      std::vector<std::string>& troubles) {
  const Claim& claim = held.claim;
  const std::string key = escaped(claim.key.text);
  const auto now = BootClock::now();
  const auto lost = [&](const std::optional<Who>& by) {
    if (loss_ && loss_->final) return Outcome::was_lost;
    troubles.push_back(key + " was no longer held when it was to be released" +
                       (by ? ": " + evicted_by_text(*by) : ""));
    if (by) loss_ = Loss{claim.key, true, true, evicted_by_text(*by), by};
    return Outcome::was_lost;
  };
  if (now >= held.grant.lease.valid_until) return lost({});
  const auto until = std::min(later(now, longest_release), held.grant.lease.valid_until);
  const auto end = release_until_answered(store_, held, mode, until);
  if (const auto* error = std::get_if<Error>(&end)) {
    const bool by_lease = dlock::needs_renewal(store_, claim);
    troubles.push_back("could not release " + key + ", which ends with " +
                       (by_lease ? "its lease: " : "this dlock: ") + error->what());
    return Outcome::unknown;
  }
  const auto& answer = std::get<ReleaseResult>(end);
  return answer.outcome == Released::yes ? Outcome::released : lost(answer.evicted_by);
}

}  // namespace dlock
