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
#include "commands/wait_log.hpp"
#include "lock/grant.hpp"
#include "output/sentences.hpp"

namespace dlock {
namespace {

struct Ancestor {
  pid_t pid;
  milliseconds age;
};

milliseconds age_of(const ProcessStat& stat) {
  const auto ticks_a_second = static_cast<std::uint64_t>(sysconf(_SC_CLK_TCK));
  const milliseconds started(stat.started * 1000 / ticks_a_second);
  return passed_since(later(Deadline{}, started));
}

/// Process 1 started all others, and waits for none of them in particular.
std::vector<Ancestor> ancestors() {
  constexpr std::size_t deepest = 100;
  std::vector<Ancestor> above;
  for (pid_t pid = getppid(); pid > 1 && above.size() < deepest;) {
    const auto stat = stat_of(pid);
    above.push_back({pid, stat ? age_of(*stat) : milliseconds::max()});
    pid = stat ? stat->parent : 0;
  }
  return above;
}

/// Two containers may have one host name and the same pids: who is younger than the hold, as far as
/// ticks and two clocks can tell, is another process than the holder.
bool may_be_holder(const Ancestor& ancestor, const Holder& holder) {
  constexpr milliseconds inaccuracy{1000};
  return ancestor.pid == holder.who.pid && ancestor.age >= holder.held - inaccuracy;
}

/// The end of the sentence about a refusal, where a holder is a process that started this one (a
/// script after `acquire`, a `run` around us whose DLOCK_OWNER was lost): it may never release
/// while it waits for us. Empty if none is.
std::string deadlock_text(const Refusal& refusal) {
  if (refusal.why != Refusal::Reason::held) return "";
  const std::string host = this_process("", "").host;
  const auto above = ancestors();
  for (const Holder& holder : refusal.held_by) {
    const bool here = !holder.kept && holder.who.host == host;
    const bool started_us = std::any_of(above.begin(), above.end(), [&](const Ancestor& ancestor) {
      return may_be_holder(ancestor, holder);
    });
    if (!here || !started_us) continue;
    return "; pid " + std::to_string(holder.who.pid) +
           " started this dlock, so this is a deadlock if it waits for it: release the lock first, "
           "or give this dlock the holder's DLOCK_OWNER";
  }
  return "";
}

class WaitReporter final : public AcquireListener {
 public:
  WaitReporter(const Log& log, WaitStatus* line, const LockAcquirer::OnWaiting& on_waiting)
      : log_(log), line_(line), lines_(log), on_waiting_(on_waiting) {}
  ~WaitReporter() override { hush(); }

  void waiting(const LockKey& key, const Refusal& refusal) override {
    if (on_waiting_) on_waiting_(key, refusal);
    // The line of a terminal says the same; a job in the background has none until `fg`.
    const std::string deadlock = deadlock_text(refusal);
    const bool needs_words = refusal.unordered || !deadlock.empty();
    if (line_ == nullptr || needs_words || !in_foreground(STDERR_FILENO)) {
      log_.notice("waiting: " + refusal_text(key, refusal) + deadlock + order_text(refusal));
    }
    line_ != nullptr ? line_->begin(key, refusal) : lines_.begin(line_of(key, refusal));
    key_ = key;
  }
  void still_waiting(const LockKey& key, const Refusal& refusal) override {
    line_ != nullptr ? line_->news(refusal) : lines_.change(line_of(key, refusal));
  }
  void let_in(const LockKey& key, milliseconds waited) override {
    hush();
    log_.notice(escaped(key.text) + " acquired after " + human_duration(waited));
  }
  void server_lost(const std::string& why) override {
    tell(server_lost_text(why, "waiting"), true);
  }
  void server_back(milliseconds away) override { tell(server_back_text(away, "waiting"), false); }
  /// From here on the terminal is others'.
  void hush() {
    if (line_ != nullptr) line_->end();
    lines_.end();
  }

 private:
  static WaitLog::Text line_of(const LockKey& key, Refusal refusal) {
    return [key, refusal, as_of = BootClock::now()](milliseconds waited) mutable {
      age_by(refusal.held_by, passed_since(std::exchange(as_of, BootClock::now())));
      return waiting_text(key, refusal, waited, Screen{});
    };
  }

  void tell(const std::string& text, bool away) {
    if (line_ == nullptr) {
      if (away && !key_.text.empty()) {
        lines_.change_for_long([key = key_](milliseconds waited) {
          return waiting_in_vain_text(key, waited, Screen{});
        });
      }
      return log_.notice(text);
    }
    line_->away(away);
    line_->aside([&] { log_.notice(text); });
  }

  const Log& log_;
  WaitStatus* line_;  ///< null where nobody would see it
  WaitLog lines_;     ///< silent where somebody does
  const LockAcquirer::OnWaiting& on_waiting_;
  LockKey key_;  ///< that is waited for
};

}  // namespace

LockAcquirer::LockAcquirer(const ClaimSettings& settings, const Log& log, Signals& signals,
                           Terms terms)
    : settings_(settings),
      log_(log),
      signals_(signals),
      terms_(std::move(terms)),
      owner_(settings.owner ? *settings.owner : new_owner_below(settings.above)),
      store_(open_store(settings, log)) {}

std::vector<Claim> LockAcquirer::claims() const {
  std::vector<Claim> claims;
  const Token token = new_token(owner_);
  for (const LockKey& key : settings_.keys) {
    claims.push_back({key, owner_, token, settings_.limit, settings_.ttl, terms_.min_hold,
                      terms_.upkeep, terms_.who, settings_.latest});
  }
  return claims;
}

/// A reader is refused because of the writer in the queue, not of the readers that hold the key.
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
    // The refusal says enough without it.
  }
}

LockAcquirer::Result LockAcquirer::acquire() {
  const bool seen = !settings_.quiet && !settings_.verbose && screen_at(STDERR_FILENO).moves_cursor;
  std::optional<WaitStatus> line;
  if (seen) line.emplace([this] { return open_store(settings_); }, owner_, terms_.who);
  WaitReporter teller(log_, line ? &*line : nullptr, on_waiting_);
  const int fds[] = {signals_.fd(), terms_.abandon_fd};
  std::optional<AnyOf> either;
  if (terms_.abandon_fd >= 0) either.emplace(fds);
  if (!begun_) begun_ = BootClock::now();
  bool reached = false;
  while (true) {
    AcquireTerms terms;
    terms.wait = settings_.wait;
    if (terms.wait) terms.wait = std::max(milliseconds(0), *terms.wait - passed_since(*begun_));
    terms.reached = reached;
    terms.cancel_fd = either ? either->fd() : signals_.fd();
    terms.unconfirmed = terms_.unconfirmed;
    terms.open_second = [this] { return open_store(settings_, log_); };
    Acquired acquired = dlock::acquire(*store_, claims(), terms, teller);
    teller.hush();
    Result result;
    result.waited = passed_since(*begun_);
    if (auto* held = std::get_if<std::vector<Held>>(&acquired)) {
      result.held = std::move(*held);
      for (const Held& each : result.held) {
        log_.detail("holding " + escaped(each.claim.key.text) + " at " + store_->name() +
                    fence_text(each.grant.fence) + ", after " + human_duration(result.waited));
        const auto& margin = each.grant.margin;
        if (margin && margin->held < margin->servers) tell_margin(log_, each.claim.key, *margin);
      }
      return result;
    }
    if (auto* gave_up = std::get_if<GaveUp>(&acquired)) {
      result.gave_up = std::move(*gave_up);
      name_waiter_ahead(result.gave_up->key, result.gave_up->refusal);
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
    if (terms_.abandon_fd >= 0 && readable(terms_.abandon_fd)) {
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

void tell_margin(const Log& log, const LockKey& key, const QuorumMargin& margin) {
  const std::string text = margin_text(key, margin);
  margin.held <= margin.needed || margin.misnamed ? log.notice(text) : log.detail(text);
}

void tell_troubles(const Log& log, Store& store) {
  for (const Error& each : store.take_troubles()) {
    each.kind() == ErrorKind::usage ? log.notice(each.what()) : log.detail(each.what());
  }
}

void tell_refusal(const Log& log, const GaveUp& gave_up, milliseconds waited) {
  const std::string text = refusal_text(gave_up.key, gave_up.refusal);
  const bool superseded = gave_up.refusal.why == Refusal::Reason::superseded;
  const std::string begin = superseded ? "left the queue after " : "not acquired within ";
  log.notice(gave_up.waited ? begin + human_duration(waited) + ": " + text : text);
}

}  // namespace dlock
