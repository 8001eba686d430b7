#include "commands/held_locks.hpp"

#include <unistd.h>

#include <algorithm>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"
#include "commands/lock_acquirer.hpp"
#include "lock/release.hpp"
#include "output/sentences.hpp"

namespace dlock {
namespace {

constexpr milliseconds longest_release{2000};

/// A lock that was handed over by a message has a short lease; the child gets a third of it to end.
milliseconds unconfirmed_grace(const Grant& grant) { return grant.lease.length / 3; }

/// Renews a hold; repeats the request while the server is busy with other clients and the lease
/// lasts.
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

HeldLocks::HeldLocks(Store& store, std::vector<Held> held, const Log& log,
                     OnPredecessor on_predecessor)
    : store_(store),
      held_(std::move(held)),
      log_(log),
      on_predecessor_(std::move(on_predecessor)) {}

bool HeldLocks::needs_renewal() const { return dlock::needs_renewal(store_, held_.front().claim); }

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
    lost(held.claim, {});
    try {
      lost(held.claim, store_.renew(held.claim, {}, short_call()).evicted_by);
    } catch (const Error&) {
      // Only the name of the client that evicted the hold is missing.
    }
    return false;
  }
  return true;
}

void HeldLocks::lost(const Claim& claim, const std::optional<Who>& evicted_by) {
  loss_ = Loss{claim.key, true, true, gone_text(store_, evicted_by), evicted_by};
}

std::optional<Who> HeldLocks::evicted_by() const {
  return loss_ ? loss_->evicted_by : std::nullopt;
}

void HeldLocks::start_renewing(pid_t command, std::atomic<BootClock::rep>* safe_until) {
  for (Held& held : held_) held.claim.who.command_pid = command;
  renewer_ =
      std::make_unique<LeaseRenewer>(store_, held_, safe_until, LeaseRenewer::Begin::when_due);
}

int HeldLocks::fd() const { return renewer_ ? renewer_->news_fd() : -1; }

Deadline HeldLocks::look_by() const { return renewer_ ? renewer_->start_by() : never; }

StopSource::News HeldLocks::look() {
  if (!renewer_) return News::none;
  renewer_->take_news();
  renewer_->start();
  for (const auto& [key, margin] : renewer_->take_margins()) {
    if (takes_a_line(STDERR_FILENO)) report_margin(log_, key, margin);
  }
  for (const auto& [key, predecessor] : renewer_->take_predecessors()) {
    on_predecessor_(key, predecessor);
  }
  if (renewer_->lost()) return News::lost;
  const auto request = renewer_->take_stop_request();
  if (!request) return News::none;
  stop_request_ = request;
  return News::stop_asked;
}

void HeldLocks::look_no_more() {
  if (!renewer_) return;
  // Store the loss now: if a server answers during the grace, the renewer forgets it.
  loss_ = renewer_->loss();
  if (needs_renewal()) renewer_->start();
}

Deadline HeldLocks::safe_until() const {
  if (renewer_) return renewer_->safe_until();
  Deadline until = never;
  for (const Held& held : held_) until = std::min(until, held.grant.lease.valid_until);
  return until;
}

milliseconds HeldLocks::grace(milliseconds usual) const {
  if (renewer_ && renewer_->confirmed()) return usual;
  for (const Held& held : held_) {
    if (!held.grant.confirmed) usual = std::min(usual, unconfirmed_grace(held.grant));
  }
  return usual;
}

void HeldLocks::renew_now() {
  if (renewer_ && needs_renewal()) renewer_->renew_now(request_timeout(held_.front().claim.ttl));
}

std::string HeldLocks::stop_text() const {
  const std::string keys =
      joined(held_, ", ", [](const Held& held) { return escaped(held.claim.key.text); });
  if (!needs_renewal()) return "stopped: " + keys + " stays held until COMMAND has ended";
  return "stopped: nobody renews " + keys + " meanwhile; unless continued within " +
         human_duration(left_until(renewer_->safe_until())) +
         ", others may hold it, and COMMAND is ended once continued";
}

std::string HeldLocks::loss_text() const {
  const auto loss = renewer_ ? renewer_->loss() : loss_;
  return loss ? lost_text(loss->key, loss->reason) : std::string("lost the lock: ") + not_in_time;
}

void HeldLocks::stop_renewing(bool lost) {
  if (!renewer_) return;
  if (const auto loss = renewer_->loss(); loss || !lost) loss_ = loss;
  held_ = renewer_->stop();
  ended_renewer_ = std::move(renewer_);
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
  // A survivor may hide its environment and have left the process group of COMMAND, so record the
  // survivor's own group.
  const pid_t group = survivors.front().group;
  bool held = true;
  for (const Held& each : held_) {
    held = (group <= 0 || store_.host_view()->command_started(each.claim, group)) && held;
  }
  if (!held) return "but was lost before";
  return survivors.size() == 1 ? "and ends when that does" : "and ends when they do";
}

HeldLocks::Outcome HeldLocks::release(const ReleaseOptions& how) {
  auto worst = Outcome::released;
  // Report errors only after all releases: a blocked stderr must not delay the next release.
  std::vector<std::string> troubles;
  for (const Held& held : held_) worst = std::max(worst, release(held, how, troubles));
  for (const std::string& trouble : troubles) log_.error(trouble);
  report_troubles(log_, store_);
  return worst;
}

HeldLocks::Outcome HeldLocks::release(const Held& held, const ReleaseOptions& how,
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
  const auto end = release_until_answered(store_, held, how, until);
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
