#include "commands/lock_acquirer.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/duration.hpp"
#include "base/process.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"
#include "commands/open_store.hpp"
#include "commands/wait_reporter.hpp"
#include "lock/grant.hpp"
#include "output/sentences.hpp"

namespace dlock {
namespace {

milliseconds age_of(const ProcessStat& stat) {
  const auto ticks_a_second = static_cast<std::uint64_t>(sysconf(_SC_CLK_TCK));
  const milliseconds started(stat.started * 1000 / ticks_a_second);
  return passed_since(later(Deadline{}, started));
}

/// The end of the refusal message if a holder is a process that started this one: a script after
/// `acquire`, or an outer `run` whose DLOCK_OWNER was lost. Such a holder may wait for this dlock
/// and never release. Empty if there is no such holder. Process 1 started all processes, but waits
/// for none in particular.
std::string deadlock_text(const Refusal& refusal) {
  constexpr milliseconds inaccuracy{1000};  // of ticks and two clocks
  constexpr int deepest = 100;
  if (refusal.why != Refusal::Reason::held) return "";
  const std::string host = this_process("", "").host;
  pid_t pid = getppid();
  for (int depth = 0; pid > 1 && depth < deepest; ++depth) {
    const auto stat = stat_of(pid);
    for (const Holder& holder : refusal.held_by) {
      // Two containers may have the same host name and the same pids, but a process that is younger
      // than the hold is not the holder.
      const bool too_young = stat && age_of(*stat) < holder.held - inaccuracy;
      const bool here = !holder.kept && holder.who.host == host && holder.who.pid == pid;
      if (!here || too_young) continue;
      return "; pid " + std::to_string(pid) +
             " started this dlock, so this is a deadlock if it waits for it: release the lock "
             "first, or give this dlock the holder's DLOCK_OWNER";
    }
    pid = stat ? stat->parent : 0;
  }
  return "";
}

WaitReporter::Text line_of(const LockKey& key, Refusal refusal) {
  return [key, refusal = std::move(refusal), as_of = BootClock::now()](
             milliseconds waited, const Screen& screen) mutable {
    age_by(refusal.held_by, passed_since(std::exchange(as_of, BootClock::now())));
    return waiting_text(key, refusal, waited, screen);
  };
}

class AcquireReporter final : public AcquireListener {
 public:
  AcquireReporter(const Log& log, WaitReporter::Look look,
                  const LockAcquirer::OnWaiting& on_waiting)
      : log_(log), lines_(log, std::move(look)), on_waiting_(on_waiting) {}

  void waiting(const LockKey& key, const Refusal& refusal) override {
    if (!lines_.waits_for(key)) announce(key, refusal);
    lines_.waiting(key, line_of(key, refusal));
  }
  void preempted(const LockKey& key, const std::vector<Holder>& holders) override {
    for (const Holder& holder : holders) report_stop_request(log_, key, holder);
  }
  void on_acquired(const LockKey& key) override {
    log_.notice(escaped(key.text) + " acquired after " + human_duration(lines_.end()));
  }
  void server_lost(const std::string& why) override { lines_.server_lost(why); }
  void server_back(milliseconds away) override { lines_.server_back(away); }
  /// From here on the terminal belongs to other output.
  void end() { lines_.end(); }

 private:
  void announce(const LockKey& key, const Refusal& refusal) {
    if (on_waiting_) on_waiting_(key, refusal);
    // The status line of a terminal says the same, but a background job shows none until `fg`.
    const std::string deadlock = deadlock_text(refusal);
    const bool needs_words = refusal.unordered || !deadlock.empty();
    if (!lines_.on_terminal() || needs_words || !in_foreground(STDERR_FILENO)) {
      log_.notice("waiting: " + refusal_text(key, refusal) + deadlock +
                  (refusal.unordered ? "; there is no queue, any waiter may be next" : ""));
    }
  }

  const Log& log_;
  WaitReporter lines_;
  const LockAcquirer::OnWaiting& on_waiting_;
};

/// The refusal that the waiter would get for this state if it asked now.
Refusal as_refused(const KeyState& state, const Owner& owner, const Who& who) {
  Refusal refusal;
  refusal.held_by = state.holders;
  refusal.holders = state.holders.size();
  refusal.unordered = !state.holders.empty() && !state.holders.front().library.empty();
  refusal.waiting = state.waiters.size();
  const auto self = std::find_if(state.waiters.begin(), state.waiters.end(), [&](const auto& each) {
    return each.owner == owner.text && each.who == who;
  });
  refusal.ahead = static_cast<std::size_t>(self - state.waiters.begin());
  return refusal;
}

std::string not_acquired_text(const GaveUp& gave_up, milliseconds waited) {
  const std::string text = refusal_text(gave_up.key, gave_up.refusal);
  const bool superseded = gave_up.refusal.why == Refusal::Reason::superseded;
  const std::string begin = superseded ? "left the queue after " : "not acquired within ";
  return gave_up.waited ? begin + human_duration(waited) + ": " + text : text;
}

}  // namespace

LockAcquirer::LockAcquirer(const ClaimSettings& settings, const Log& log, Signals& signals,
                           Options options)
    : settings_(settings),
      log_(log),
      signals_(signals),
      options_(std::move(options)),
      owner_(settings.owner ? *settings.owner : new_owner_below(settings.above)),
      store_(open_store(settings, log)) {}

std::vector<Claim> LockAcquirer::claims() const {
  std::vector<Claim> claims;
  const Token token = new_token(owner_, settings_.keys.size());
  const auto ttl = options_.until ? std::chrono::ceil<milliseconds>(*options_.until - wall_now())
                                  : settings_.ttl;
  for (const LockKey& key : settings_.keys) {
    claims.push_back({key, owner_, token, settings_.limit, std::max(ttl, milliseconds(1)),
                      options_.min_hold, options_.upkeep, options_.who, settings_.latest});
  }
  return claims;
}

/// Names the waiter ahead in a refusal. A reader is refused because of a queued writer, not because
/// of the readers that hold the key.
void LockAcquirer::name_waiter_ahead(const LockKey& key, Refusal& refusal) {
  const auto all = static_cast<std::int64_t>(refusal.holders) + 1;
  const bool has_room = settings_.limit.admits(all) &&
                        std::all_of(refusal.held_by.begin(), refusal.held_by.end(),
                                    [&](const Holder& each) { return each.limit.admits(all); });
  if (refusal.why != Refusal::Reason::held || refusal.ahead == 0 || !has_room) return;
  try {
    const auto states = store_->inspect({{key}, {}}, short_call());
    const auto& waiters = states.at(0).waiters;
    refusal.behind = waiters.at(std::min(refusal.ahead, waiters.size()) - 1).who;
  } catch (const std::exception&) {
    // not_acquired_text() then has no name.
  }
}

LockAcquirer::Result LockAcquirer::acquire() {
  const bool seen = !settings_.quiet && !settings_.verbose && screen_at(STDERR_FILENO).moves_cursor;
  StorePtr second;  // only the thread that draws uses it
  const auto look = [&](const LockKey& key, const CallOptions& call_options) {
    if (!second) second = open_store(settings_);
    const auto states = second->inspect({{key}, {}}, call_options);
    return line_of(key, as_refused(states.front(), owner_, options_.who));
  };
  AcquireReporter reporter(log_, seen ? look : WaitReporter::Look(), options_.on_waiting);
  const int fds[] = {signals_.fd(), options_.abandon_fd};
  std::optional<AnyOf> either;
  if (options_.abandon_fd >= 0) either.emplace(fds);
  if (!begun_) begun_ = BootClock::now();
  bool reached = false;
  while (true) {
    AcquireOptions options;
    options.wait = settings_.wait;
    if (options.wait) {
      options.wait = std::max(milliseconds(0), *options.wait - passed_since(*begun_));
    }
    if (options_.until) options.give_up_at = later(BootClock::now(), *options_.until - wall_now());
    options.reached = reached;
    options.cancel_fd = either ? either->fd() : signals_.fd();
    options.unconfirmed = options_.unconfirmed;
    options.preempt = settings_.preempt;
    options.open_second = [this] { return open_store(settings_, log_); };
    Acquired acquired = dlock::acquire(*store_, claims(), options, reporter);
    reporter.end();
    Result result;
    if (auto* held = std::get_if<std::vector<Held>>(&acquired)) {
      result.held = std::move(*held);
      for (const Held& each : result.held) {
        log_.detail("holding " + escaped(each.claim.key.text) + " at " + store_->name() +
                    fence_text(each.grant.fence) + ", after " + human_duration(waited()));
        const auto& margin = each.grant.margin;
        if (margin && margin->held < margin->servers) report_margin(log_, each.claim.key, *margin);
      }
      return result;
    }
    if (auto* gave_up = std::get_if<GaveUp>(&acquired)) {
      name_waiter_ahead(gave_up->key, gave_up->refusal);
      result.reason = not_acquired_text(*gave_up, waited());
      log_.notice(result.reason);
      result.gave_up = std::move(*gave_up);
      return result;
    }
    reached = std::get<Interrupted>(acquired).reached;
    while (const auto event = signals_.take()) {
      if (ends_waiting(event->number)) {
        result.signal = event->number;
        return result;
      }
      if (screen_at(STDERR_FILENO).is_terminal) {
        log_.notice("stopped, and left the queue: it queues again, at the end, once continued");
      }
      stop_by(event->number, Stop::myself);
    }
    if (options_.abandon_fd >= 0 && readable(options_.abandon_fd)) {
      result.abandoned = true;
      return result;
    }
  }
}

std::vector<LockFence> LockAcquirer::fences(const std::vector<Held>& held) const {
  std::vector<LockFence> fences;
  for (const LockKey& key : settings_.keys) {
    const auto found = std::find_if(held.begin(), held.end(),
                                    [&](const Held& each) { return each.claim.key == key; });
    if (found != held.end()) fences.push_back({key, found->grant.fence});
  }
  return fences;
}

std::optional<std::string> fence_list(const std::vector<LockFence>& locks) {
  std::string list;
  for (const LockFence& lock : locks) {
    if (lock.fence == Fence{}) return std::nullopt;
    list += (list.empty() ? "" : ",") + std::to_string(lock.fence.value);
  }
  return list;
}

void LockAcquirer::die_of(int signal) {
  store_.reset();
  dlock::die_of(signal);
}

void report_stop_request(const Log& log, const LockKey& key, const Holder& holder) {
  const std::string what = client_text(holder) + " to stop and to release " + escaped(key.text) +
                           fence_text(holder.fence);
  if (holder.hears_requests()) return log.notice("asked " + what);
  const std::string why =
      holder.kept ? "it has ended, and --min-hold keeps the key" : "no dlock runs beside it";
  log.warning("cannot ask " + what + ": " + why);
}

void report_margin(const Log& log, const LockKey& key, const QuorumMargin& margin) {
  const std::string text = margin_text(key, margin);
  margin.held <= margin.needed || margin.misnamed ? log.notice(text) : log.detail(text);
}

void report_troubles(const Log& log, Store& store) {
  for (const Error& each : store.take_troubles()) {
    each.kind() == ErrorKind::usage ? log.notice(each.what()) : log.detail(each.what());
  }
}

}  // namespace dlock
