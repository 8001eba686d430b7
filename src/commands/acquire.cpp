#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "attach/daemon.hpp"
#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/process.hpp"
#include "commands/commands.hpp"
#include "commands/held_locks.hpp"
#include "commands/hook.hpp"
#include "commands/lock_acquirer.hpp"
#include "lock/release.hpp"
#include "output/json.hpp"
#include "output/sentences.hpp"

namespace dlock {
namespace {

/// The process that called dlock. If dlock is the first process of a container, or was started in a
/// container from outside, its caller has no pid in dlock's namespace; dlock then names itself.
pid_t calling_process() {
  const pid_t parent = getppid();
  return parent == 0 ? getpid() : parent;
}

/// Other clients see the script as the holder, because dlock itself ends or goes to the background.
Who script_as_seen(const AcquireSettings& settings) {
  const pid_t pid = settings.attach.value_or(calling_process());
  Who who = this_process(command_name(pid), settings.label);
  who.pid = pid;
  who.via = settings.attach ? Via::attach : Via::acquire;
  return who;
}

std::string report(const AcquireSettings& settings, const std::vector<Held>& held,
                   const std::vector<LockFence>& fences, milliseconds waited) {
  const Token& token = held.front().claim.token;
  const Claim& claim = held.front().claim;
  if (settings.json) return grant_json(token, claim.owner, claim.ttl, waited, fences);
  if (!settings.env) return token.text + "\n";
  const auto list = fence_list(fences);
  return "DLOCK_TOKEN=" + token.text + (list ? "\nDLOCK_FENCE=" + *list : "") +
         "\nDLOCK_OWNER=" + held.front().claim.owner.text + "\n";
}

/// One `dlock acquire`, from the settings to the exit code.
class Acquire {
 public:
  Acquire(const AcquireSettings& settings, const Log& log, Signals& signals, Hook& hook)
      : settings_(settings),
        log_(log),
        signals_(signals),
        hook_(hook),
        script_(script_of(settings)),
        acquiring_(settings, log, signals,
                   {.who = script_as_seen(settings),
                    .upkeep = script_ ? Liveness::process : Liveness::renewal,
                    .abandon_fd = script_ ? script_->fd() : -1,
                    .until = settings.until,
                    .on_waiting = [this](const LockKey& key, const Refusal& refusal) {
                      hook_.call({.event = "waiting",
                                  .keys = key.text,
                                  .holder = first_holder(refusal),
                                  .reason = refusal_text(key, refusal)});
                    }}) {
    hook.set_where(acquiring_.store().name());
  }

  int operator()();

 private:
  LockAcquirer::Result acquire();
  static std::optional<WatchedProcess> script_of(const AcquireSettings& settings);
  int start_attach_daemon(const std::vector<Held>& held);
  std::optional<std::string> lost_meanwhile(std::vector<Held>& held);
  std::optional<std::string> shorten(std::vector<Held>& held);
  int end(HookCall call, ExitCode code);
  int abandoned();
  bool release(const std::vector<Held>& held);
  void die_if_signalled(const std::vector<Held>& held);
  int lost_after_grant();
  int lost(const std::string& reason);

  const AcquireSettings& settings_;
  const Log& log_;
  Signals& signals_;
  Hook& hook_;
  std::optional<WatchedProcess> script_;
  LockAcquirer acquiring_;
  std::optional<AttachDaemon> daemon_;
};

std::optional<WatchedProcess> Acquire::script_of(const AcquireSettings& settings) {
  if (!settings.attach) return std::nullopt;
  try {
    return WatchedProcess(*settings.attach);
  } catch (const Error& error) {
    throw error.reworded(std::string("--attach: ") + error.what());
  }
}

/// A request of this process that is still under way could take the key after `dlock release`,
/// which does not know of it, and nobody would use that hold. Acquire therefore tries again with
/// another token, and releases the first one.
LockAcquirer::Result Acquire::acquire() {
  constexpr int most_tries = 3;
  const auto may_come_late = [this](const Held& each) {
    return acquiring_.store().may_be_taken_late(each.claim);
  };
  auto result = acquiring_.acquire();
  for (int tries = 1; tries < most_tries; ++tries) {
    if (std::none_of(result.held.begin(), result.held.end(), may_come_late)) break;
    const auto before = std::move(result.held);
    try {
      result = acquiring_.acquire();
    } catch (const std::exception&) {
      release(before);
      throw;
    }
    if (release(before) || result.held.empty()) continue;
    // If both tokens hold the lock, a release by one token does not free it.
    release(result.held);
    throw Error(ErrorKind::unavailable, acquiring_.store().name() +
                                            " did not say that it released an earlier request: no "
                                            "token is printed");
  }
  return result;
}

int Acquire::operator()() {
  auto result = acquire();
  if (result.signal) acquiring_.die_of(*result.signal);
  if (result.abandoned) return abandoned();
  if (result.gave_up) {
    if (settings_.json && !settings_.quiet) print(refused_json(*result.gave_up, result.reason));
    return end({.event = "not-acquired",
                .holder = first_holder(result.gave_up->refusal),
                .reason = result.reason},
               ExitCode::not_acquired);
  }
  for (const Held& each : result.held) {
    const auto& before = each.grant.predecessor;
    if (before) log_.warning(predecessor_text(each.claim.key, *before));
  }
  die_if_signalled(result.held);
  if (script_) {
    const int code = start_attach_daemon(result.held);
    if (code != 0) return code;
  } else if (const auto loss = lost_meanwhile(result.held)) {
    return lost(*loss + "; no token is printed");
  }
  const auto fences = acquiring_.fences(result.held);
  if (!settings_.quiet) {
    const auto text = report(settings_, result.held, fences, acquiring_.waited());
    if (!write_all(STDOUT_FILENO, text)) {
      const std::string why = std::strerror(errno);
      release(result.held);
      throw Error(ErrorKind::host_refused,
                  "cannot write the token, so the lock was released: " + why);
    }
  }
  if (!daemon_) {
    report_troubles(log_, acquiring_.store());
  } else if (!daemon_->commit()) {
    return lost_after_grant();
  }
  return end({.event = "acquired", .fences = fence_list(fences).value_or("")}, ExitCode::ok);
}

int Acquire::start_attach_daemon(const std::vector<Held>& held) {
  if (script_->pid() == 1 && needs_renewal(acquiring_.store(), held.front().claim)) {
    log_.notice(
        "when process 1 ends, so does everything in its container: the lock then stays "
        "held until its lease of " +
        human_duration(settings_.ttl) +
        " expires, unless process 1 is an init (docker run --init)");
  }
  try {
    daemon_.emplace(acquiring_.store_ptr(), held, *script_, settings_.stop_signal);
  } catch (const Error&) {
    release(held);
    throw;
  }
  while (true) {
    const auto start = daemon_->await(signals_.fd());
    if (start == AttachDaemon::Start::lost) return lost_after_grant();
    die_if_signalled(held);
    if (start == AttachDaemon::Start::keeps) return 0;
  }
}

/// Shortens the lease of a lock that was waited for, so that it expires at the time of --until.
/// Returns why the lock is lost, if it is.
std::optional<std::string> Acquire::shorten(std::vector<Held>& held) {
  constexpr milliseconds inaccuracy{1000};
  for (Held& each : held) {
    const auto left = std::chrono::ceil<milliseconds>(*settings_.until - wall_now());
    if (each.claim.ttl - left < inaccuracy) continue;
    each.claim.ttl = std::max(left, milliseconds(1));
    const auto renewed = acquiring_.store().renew(
        each.claim, {.ttl = each.claim.ttl, .granted = each.grant.fence}, short_call());
    if (renewed.grant) continue;
    return lost_text(each.claim.key, gone_text(acquiring_.store(), renewed.evicted_by));
  }
  return std::nullopt;
}

/// Renews a lease with less than two thirds of its ttl left: if dlock was suspended before it read
/// the answer, the lease may be nearly over, or another client may hold the lock. An attach daemon
/// does this itself.
std::optional<std::string> Acquire::lost_meanwhile(std::vector<Held>& held) {
  try {
    if (settings_.until) {
      auto loss = shorten(held);
      if (loss) release(held);
      return loss;
    }
    HeldLocks holding(acquiring_.store(), held, log_);
    if (holding.ready_to_start(settings_.ttl / 3)) return std::nullopt;
    release(held);
    return holding.loss_text();
  } catch (const Error&) {
    release(held);
    throw;
  }
}

void Acquire::die_if_signalled(const std::vector<Held>& held) {
  while (const auto event = signals_.take()) {
    if (!ends_waiting(event->number)) continue;
    release(held);
    acquiring_.die_of(event->number);
  }
}

/// Returns whether the engine has answered for all locks; a daemon releases them itself.
bool Acquire::release(const std::vector<Held>& held) {
  if (!daemon_) return release_all(acquiring_.store(), held, time_to_release);
  daemon_->dismiss();
  return true;
}

int Acquire::end(HookCall call, ExitCode code) {
  call.keys = key_list(settings_.keys);
  call.exit_code = std::to_string(static_cast<int>(code));
  hook_.call(call);
  return static_cast<int>(code);
}

/// Returns 75, as for every lock that was not acquired: the process of --attach has ended, but
/// another process may have called dlock and read the exit code.
int Acquire::abandoned() {
  const std::string why = "not acquired: process " + std::to_string(script_->pid()) + " has ended";
  log_.notice(why);
  return end({.event = "not-acquired", .reason = why}, ExitCode::not_acquired);
}

int Acquire::lost_after_grant() {
  if (script_->ended()) return abandoned();
  return lost("lost the lock just after it was acquired: " + acquiring_.store().name() +
              " no longer has it");
}

int Acquire::lost(const std::string& reason) {
  log_.error(reason);
  return end({.event = "lost", .reason = reason}, ExitCode::lost);
}

}  // namespace

int carry_out(const AcquireSettings& settings, const Log& log) {
  Hook hook(settings.hook, log);
  Signals signals;
  try {
    const int code = Acquire(settings, log, signals, hook)();
    hook.finish(&signals);
    return code;
  } catch (const Error& error) {
    hook.call(error_call(settings.keys, error));
    hook.finish(&signals);
    throw;
  }
}

}  // namespace dlock
