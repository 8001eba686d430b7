#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/process.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"
#include "commands/commands.hpp"
#include "commands/held_locks.hpp"
#include "commands/lock_acquirer.hpp"
#include "commands/run_notifications.hpp"
#include "config/sources.hpp"
#include "lock/work.hpp"
#include "output/screen.hpp"
#include "output/sentences.hpp"
#include "supervise/supervise.hpp"
#include "supervise/watchdog.hpp"

namespace dlock {
namespace {

constexpr int signal_base = 128;

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

/// `pid 4242 (backup), owned by root`.
std::string survivor_text(const Survivor& survivor) {
  if (survivor.pid == 0) return survivor.why;
  std::string text = "pid " + std::to_string(survivor.pid);
  if (!survivor.name.empty()) text += " (" + escaped(survivor.name) + ")";
  if (!survivor.why.empty()) text += ", " + survivor.why;
  return text;
}

/// One `dlock run`, from the settings to the exit code.
class Run {
 public:
  Run(const RunSettings& settings, const Log& log)
      : settings_(settings), log_(log), notifications_(settings, log) {}

  int operator()();

 private:
  LockAcquirer::Result acquire();
  int hold_and_run(std::vector<Held> held);
  void start_child(std::optional<Child>& child, HeldLocks& holding);
  void renew_or_stop(Child& child, HeldLocks& holding, std::optional<Watchdog>& watchdog);
  SuperviseOptions options(HeldLocks& holding, std::optional<Watchdog>& watchdog);
  Program program(const HeldLocks& holding) const;
  std::optional<int> signal_before_start();
  int lost_before_start(HeldLocks& holding);
  int not_acquired(const LockAcquirer::Result& result);
  int interrupted(int signal);
  int finished(Ending ending, HeldLocks& holding);
  int not_started(int error, HeldLocks& holding);
  HeldLocks::Outcome release(HeldLocks& holding, const ReleaseOptions& how);
  void leave_to_expire(const std::vector<Survivor>& survivors, HeldLocks& holding);
  void describe(const Ending& ending, const HeldLocks& holding);
  int done(int exit_code);

  const RunSettings& settings_;
  const Log& log_;
  RunNotifications notifications_;
  Signals signals_;
  std::optional<LockAcquirer> acquiring_;
  RunStatus status_;
  bool released_ = false;
  bool loss_reported_ = false;
};

int Run::operator()() {
  try {
    if (settings_.wait_tree && !children_of(getpid())) {
      throw Error(ErrorKind::host_refused,
                  "--wait-tree: /proc does not show the processes below dlock, so their end could "
                  "not be seen");
    }
    auto result = acquire();
    status_.waited = acquiring_->waited();
    if (result.signal) return interrupted(*result.signal);
    if (result.gave_up) return not_acquired(result);
    return hold_and_run(std::move(result.held));
  } catch (const Error& error) {
    if (acquiring_ && status_.locks.empty()) status_.waited = acquiring_->waited();
    status_.outcome = "error";
    status_.reason = error.what();
    done(static_cast<int>(exit_code(error.kind())));
    throw;
  }
}

LockAcquirer::Result Run::acquire() {
  acquiring_.emplace(
      settings_, log_, signals_,
      LockAcquirer::Options{
          .who = this_process(base_name(settings_.command_argv.front()), settings_.label),
          .upkeep = Liveness::process,
          .min_hold = settings_.min_hold.value_or(milliseconds(0)),
          .unconfirmed = true,
          .on_waiting = [this](const LockKey& key, const Refusal& refusal) {
            notifications_.waiting(key, refusal);
          }});
  notifications_.begin(acquiring_->store().name());
  return acquiring_->acquire();
}

int Run::hold_and_run(std::vector<Held> held) {
  const auto granted = BootClock::now();
  status_.locks = acquiring_->fences(held);
  notifications_.acquired(status_);
  std::optional<Watchdog> watchdog;
  const auto on_predecessor = [this](const LockKey& key, const Predecessor& predecessor) {
    if (takes_a_line(STDERR_FILENO)) log_.warning(predecessor_text(key, predecessor));
    notifications_.predecessor_evicted(status_, predecessor_text(key, predecessor));
  };
  for (const Held& each : held) {
    if (const auto& before = each.grant.predecessor) on_predecessor(each.claim.key, *before);
  }
  HeldLocks holding(acquiring_->store(), std::move(held), log_, on_predecessor);
  std::optional<Child> child;
  try {
    if (!holding.ready_to_start(settings_.grace)) return lost_before_start(holding);
    if (settings_.watchdog)
      watchdog.emplace(settings_.stop_on_loss ? holding.safe_until() : never,
                       kill_cost(settings_.ttl),
                       [work = Work{acquiring_->owner(), {}, own_process().started}] {
                         return running_processes(work);
                       });
    if (const auto signal = signal_before_start()) {
      release(holding, {ReleaseMode::ignore_floor});
      return interrupted(*signal);
    }
    start_child(child, holding);
    if (!child) return lost_before_start(holding);
  } catch (const std::exception&) {
    release(holding, {ReleaseMode::ignore_floor});
    throw;
  }
  renew_or_stop(*child, holding, watchdog);
  Ending ending = supervise(*child, signals_, options(holding, watchdog));
  if (watchdog) watchdog->dismiss();
  if (watchdog && watchdog->has_killed()) ending.why = Ending::Reason::lost;
  status_.held = passed_since(granted);
  return finished(std::move(ending), holding);
}

/// Starts COMMAND; leaves `child` empty if a hold is lost.
void Run::start_child(std::optional<Child>& child, HeldLocks& holding) {
  bool held = true;
  const auto record = [&] {
    held = holding.command_started(getpgrp());
    if (!held) throw Error(ErrorKind::unavailable, "lost before COMMAND started");
  };
  try {
    child.emplace(program(holding), signals_,
                  holding.needs_renewal() ? nullptr : std::function<void()>(record));
  } catch (const std::exception&) {
    if (held) throw;
  }
}

/// Starts the renewals. If that fails, stops COMMAND, releases the locks and throws the error.
void Run::renew_or_stop(Child& child, HeldLocks& holding, std::optional<Watchdog>& watchdog) {
  try {
    holding.start_renewing(child.pid(),
                           watchdog && settings_.stop_on_loss ? &watchdog->safe_until() : nullptr);
  } catch (const std::exception&) {
    auto at_once = options(holding, watchdog);
    at_once.max_hold = milliseconds(0);
    const Ending ending = supervise(child, signals_, at_once);
    if (ending.survivors.empty()) {
      release(holding, {});
    } else {
      leave_to_expire(ending.survivors, holding);
    }
    throw;
  }
}

SuperviseOptions Run::options(HeldLocks& holding, std::optional<Watchdog>& watchdog) {
  SuperviseOptions options;
  options.stop_signal = settings_.stop_signal;
  options.grace = settings_.grace;
  options.kill_cost = kill_cost(settings_.ttl);
  options.max_hold = settings_.max_hold;
  options.loss = &holding;
  options.keep_running_on_loss = !settings_.stop_on_loss;
  options.wait_tree = settings_.wait_tree;
  if (watchdog) options.watchdog = &*watchdog;
  options.on_loss = [&] {
    loss_reported_ = takes_a_line(STDERR_FILENO);
    if (loss_reported_) log_.warning(holding.loss_text() + "; COMMAND runs on (--on-lost ignore)");
    status_.reason = holding.loss_text();
    notifications_.lost(status_);
  };
  options.on_stop_asked = [&] {
    const auto& [key, by] = *holding.stop_request();
    status_.stop_asked_by = by;
    status_.reason = stop_asked_by_text(by);
    if (takes_a_line(STDERR_FILENO))
      log_.warning(escaped(key.text) + ": " + status_.reason + "; sent COMMAND signal " +
                   signal_name(settings_.stop_signal) + ", and hold the lock until it has ended");
    notifications_.stop_asked(status_);
  };
  options.before_stop = [&] {
    holding.renew_now();
    // A terminal that accepts no output (^S) must not keep dlock from stopping.
    if (screen_at(STDERR_FILENO).is_terminal && takes_a_line(STDERR_FILENO))
      log_.notice(holding.stop_text());
  };
  return options;
}

Program Run::program(const HeldLocks& holding) const {
  Program program;
  program.argv = settings_.command_argv;
  program.environment = {{"DLOCK_KEY", key_list(settings_.keys)},
                         {"DLOCK_FENCE", fence_list(status_.locks)},
                         {"DLOCK_OWNER", acquiring_->owner().text}};
  program.hidden_fd = settings_.status_fd.value_or(-1);
  // dlock would at once kill a command that started later.
  const Deadline until = holding.safe_until();
  if (until != never) program.start_before = until - kill_cost(settings_.ttl);
  return program;
}

/// Returns a signal that ends dlock and came after the grant and before COMMAND exists; the caller
/// then does not start COMMAND.
std::optional<int> Run::signal_before_start() {
  bool stop = false;
  while (const auto event = signals_.take()) {
    if (ends_waiting(event->number)) return event->number;
    stop = true;
  }
  if (stop) raise(SIGTSTP);  // the supervisor takes it once there is a job to stop
  return std::nullopt;
}

int Run::lost_before_start(HeldLocks& holding) {
  status_.outcome = "lost";
  status_.reason = holding.loss_text();
  status_.evicted_by = holding.evicted_by();
  release(holding, {ReleaseMode::ignore_floor});
  log_.error(status_.reason + "; COMMAND was not started");
  return done(static_cast<int>(ExitCode::lost));
}

int Run::not_acquired(const LockAcquirer::Result& result) {
  status_.outcome = "not-acquired";
  status_.reason = result.reason;
  status_.gave_up = result.gave_up;
  return done(settings_.conflict_exit_code.value_or(static_cast<int>(ExitCode::not_acquired)));
}

int Run::interrupted(int signal) {
  status_.outcome = "interrupted";
  status_.reason = "signal " + signal_name(signal);
  done(signal_base + signal);
  acquiring_->die_of(signal);
}

int Run::not_started(int error, HeldLocks& holding) {
  status_.outcome = "not-started";
  status_.reason = exec_error_text(settings_.command_argv.front(), error);
  release(holding, {ReleaseMode::ignore_floor});
  log_.error(status_.reason);
  return done(static_cast<int>(exec_exit_code(error)));
}

int Run::finished(Ending ending, HeldLocks& holding) {
  holding.stop_renewing(ending.loss_noticed);
  ending.loss_noticed = ending.loss_noticed || holding.is_lost();
  if (ending.child.exec_error == ETIME) return lost_before_start(holding);
  if (ending.child.exec_error) return not_started(*ending.child.exec_error, holding);
  // The messages come after the release, because a blocked stderr must not delay it. A loss is
  // reported first if stderr accepts a line, because the release may take a while.
  const bool lost = ending.why == Ending::Reason::lost;
  const bool described = lost && takes_a_line(STDERR_FILENO);
  if (described) describe(ending, holding);
  const bool released = ending.survivors.empty();
  ReleaseOptions how;
  how.exit_code = ending.why == Ending::Reason::max_hold ? static_cast<int>(ExitCode::max_hold)
                  : ending.child.signal                  ? signal_base + *ending.child.signal
                                                         : ending.child.exit_code;
  const bool was_lost = released && release(holding, how) == HeldLocks::Outcome::was_lost;
  status_.evicted_by = holding.evicted_by();
  if (!described) describe(ending, holding);
  if (!released) leave_to_expire(ending.survivors, holding);
  if (was_lost && !lost) {
    status_.lost = true;
    if (status_.reason.empty()) status_.reason = "lost before the release";
  }
  const bool ended_well = ending.why == Ending::Reason::ended && ending.child.exit_code == 0;
  if (lost || (ended_well && status_.lost && settings_.stop_on_loss)) {
    return done(static_cast<int>(ExitCode::lost));
  }
  if (ending.why == Ending::Reason::max_hold) return done(static_cast<int>(ExitCode::max_hold));
  if (!ending.child.signal) return done(ending.child.exit_code.value());
  done(signal_base + *ending.child.signal);
  acquiring_->die_of(*ending.child.signal);
}

void Run::describe(const Ending& ending, const HeldLocks& holding) {
  const std::string stopped =
      ending.survivors.empty() ? "was stopped" : "was stopped as far as possible";
  status_.child_exit = ending.child.exit_code;
  status_.child_signal = ending.child.signal;
  status_.lost = ending.loss_noticed && ending.why != Ending::Reason::lost;
  switch (ending.why) {
    case Ending::Reason::ended:
      status_.outcome = ending.child.signal ? "signalled" : "exited";
      break;
    case Ending::Reason::lost:
      status_.outcome = "lost";
      status_.reason = holding.loss_text();
      log_.error(status_.reason + "; COMMAND " + stopped);
      break;
    case Ending::Reason::max_hold:
      status_.outcome = "max-hold";
      status_.reason = "COMMAND ran longer than --max-hold " + human_duration(*settings_.max_hold);
      log_.error(status_.reason + " and " + stopped);
      break;
  }
  if (!status_.lost) return;
  status_.reason = holding.loss_text();
  const std::string what = settings_.stop_on_loss ? "; COMMAND had ended by then"
                                                  : "; COMMAND ran on (--on-lost ignore)";
  if (!loss_reported_) log_.error(status_.reason + what);
}

HeldLocks::Outcome Run::release(HeldLocks& holding, const ReleaseOptions& how) {
  const auto outcome = holding.release(how);
  released_ = outcome == HeldLocks::Outcome::released;
  return outcome;
}

/// Keeps the lock: processes that could not be killed may still use what the lock protects.
void Run::leave_to_expire(const std::vector<Survivor>& survivors, HeldLocks& holding) {
  std::string until;
  try {
    until = holding.outlive_by(survivors);
  } catch (const Error& error) {
    until = std::string("but may end before that: ") + error.what();
  }
  log_.error("could not kill " + joined(survivors, "; ", survivor_text) +
             ": the lock is not released, " + until);
}

int Run::done(int exit_code) {
  status_.exit_code = exit_code;
  notifications_.end(status_, released_, signals_);
  return exit_code;
}

}  // namespace

int carry_out(const RunSettings& settings, const Log& log) { return Run(settings, log)(); }

void report_unusable_settings(const CommandLine& line, const Error& error) {
  const Log log(false, false);
  RunSettings settings;
  settings.hook = line.value("hook");
  settings.metrics_file = line.value("metrics");
  auto& keys = settings.keys;
  for (const std::string& key : line.values("key")) {
    if (std::find(keys.begin(), keys.end(), LockKey{key}) == keys.end()) keys.push_back({key});
  }
  try {
    if (const auto number = line.value("status-fd")) {
      settings.status_fd = status_fd_from({*number, "--status-fd", ErrorKind::usage});
    }
  } catch (const Error&) {
    // dlock has found a first error, `error`, and reports only that one.
  }
  RunStatus status;
  status.outcome = "error";
  status.reason = error.what();
  status.exit_code = static_cast<int>(exit_code(error.kind()));
  RunNotifications notifications(settings, log);
  Signals signals;
  notifications.end(status, false, signals);
}

}  // namespace dlock
