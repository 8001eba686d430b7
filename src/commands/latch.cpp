#include <algorithm>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "commands/commands.hpp"
#include "commands/open_store.hpp"
#include "commands/wait_reporter.hpp"
#include "lock/latch.hpp"
#include "output/json.hpp"
#include "output/sentences.hpp"
#include "supervise/signals.hpp"

namespace dlock {
namespace {

class LatchReporter final : public LatchListener {
 public:
  LatchReporter(const LockKey& key, const Log& log) : key_(key), log_(log), lines_(log) {}

  void waiting(const LatchState& state) override {
    waited_ = true;
    if (!lines_.waits_for(key_)) log_.notice("waiting: " + latch_text(key_, state));
    lines_.waiting(key_, line_of(state));
  }
  void server_lost(const std::string& why) override { lines_.server_lost(why); }
  void server_back(milliseconds away) override { lines_.server_back(away); }

  bool has_waited() const { return waited_; }
  void end() { lines_.end(); }

 private:
  WaitReporter::Text line_of(const LatchState& state) const {
    return [this, state](milliseconds waited, const Screen&) {
      return "waiting " + human_duration(waited) + " for " + latch_text(key_, state);
    };
  }

  const LockKey& key_;
  const Log& log_;
  WaitReporter lines_;
  bool waited_ = false;
};

/// One `dlock latch`, from the settings to the exit code.
class Latch {
 public:
  Latch(const LatchSettings& settings, const Log& log)
      : settings_(settings), log_(log), key_(settings.key), latches_(open_latches(settings)) {}

  int open();
  int arrive();
  int wait();

 private:
  void report(const LatchState& state) const;
  int missing() const;
  void heed(Signals& signals);

  const LatchSettings& settings_;
  const Log& log_;
  const LockKey& key_;
  std::unique_ptr<Latches> latches_;
  Deadline begun_ = BootClock::now();
};

void Latch::report(const LatchState& state) const {
  log_.detail(latch_text(key_, state) + ", it ends in " + human_duration(state.left));
  if (settings_.json && !settings_.quiet) print(latch_json(key_, state));
}

int Latch::missing() const {
  const std::string name = escaped(key_.text);
  log_.error("there is no latch " + name + ": it was never opened, or its ttl has expired; " +
             "dlock latch open -k KEY --count N makes it");
  return static_cast<int>(ExitCode::lost);
}

int Latch::open() {
  const auto state = latches_->open_latch(key_, {settings_.count, settings_.ttl}, short_call());
  if (state.count != settings_.count) {
    throw Error(ErrorKind::wrong_data, escaped(key_.text) + ": the latch that is there is for " +
                                           std::to_string(state.count) + ", not for " +
                                           std::to_string(settings_.count) + ", and ends in " +
                                           human_duration(state.left) + ": take another name");
  }
  report(state);
  return 0;
}

int Latch::arrive() {
  const auto state = latches_->arrive(key_, settings_.by.value_or(new_arrival_id()), short_call());
  if (!state) return missing();
  report(*state);
  return 0;
}

int Latch::wait() {
  Signals signals;
  LatchReporter reporter(key_, log_);
  bool reached = false;
  while (true) {
    auto left = settings_.wait;
    if (left) left = std::max(milliseconds(0), *left - passed_since(begun_));
    const auto result = await_latch(*latches_, key_, left, signals.fd(), reporter, reached);
    reached = result.reached;
    reporter.end();
    switch (result.end) {
      case LatchWait::End::open:
        if (reporter.has_waited()) {
          log_.notice(escaped(key_.text) + " is open after " +
                      human_duration(passed_since(begun_)) + ": all " +
                      std::to_string(result.state.count) + " have arrived");
        }
        report(result.state);
        return 0;
      case LatchWait::End::gone:
        return missing();
      case LatchWait::End::timed_out:
        log_.notice(latch_text(key_, result.state));
        report(result.state);
        return static_cast<int>(ExitCode::not_acquired);
      case LatchWait::End::interrupted:
        heed(signals);
    }
  }
}

/// Stops or ends dlock by the signals that have arrived.
void Latch::heed(Signals& signals) {
  while (const auto event = signals.take()) {
    if (ends_waiting(event->number)) {
      // Dying by a signal runs no destructor, and an engine may have files to remove.
      latches_.reset();
      die_of(event->number);
    }
    stop_by(event->number, Stop::myself);
  }
}

}  // namespace

int carry_out(const LatchSettings& settings, const Log& log) {
  Latch latch(settings, log);
  if (settings.verb == LatchVerb::open) return latch.open();
  return settings.verb == LatchVerb::arrive ? latch.arrive() : latch.wait();
}

}  // namespace dlock
