#pragma once

#include <string>
#include <utility>

#include "commands/hook.hpp"
#include "config/settings.hpp"
#include "output/json.hpp"
#include "output/log.hpp"
#include "supervise/signals.hpp"

namespace dlock {

/// Notifies others of a run: by --hook during the run, by --metrics and --status-fd at its end.
class RunNotifications {
 public:
  /// Starts the hook's process: the conditions of Hook() apply.
  RunNotifications(const RunSettings& settings, const Log& log)
      : settings_(settings), log_(log), hook_(settings.hook, log) {}

  /// `where` names the engine, without a password.
  void begin(std::string where) { hook_.set_where(std::move(where)); }
  void waiting(const LockKey& key, const Refusal& refusal);
  void acquired(const RunStatus& status) { report("acquired", status); }
  void predecessor_evicted(RunStatus status, std::string why) {
    status.reason = std::move(why);
    report("predecessor-evicted", status);
  }
  void stop_asked(const RunStatus& status) { report("stop-asked", status); }
  /// Only the first call has an effect.
  void lost(const RunStatus& status);
  /// Reports the end; `released` if the locks were released. A run that a signal interrupts while
  /// it waits has no last event. Waits for the remaining calls of the hook, which have a time
  /// limit, or for a signal.
  void end(const RunStatus& status, bool released, Signals& signals);

 private:
  /// Writes the status to the --metrics file and the --status-fd, if given.
  void write(const RunStatus& status);
  void report(const char* event, const RunStatus& status);

  const RunSettings& settings_;
  const Log& log_;
  Hook hook_;
  bool loss_reported_ = false;
};

}  // namespace dlock
