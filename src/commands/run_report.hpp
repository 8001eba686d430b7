#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/side_process.hpp"
#include "config/settings.hpp"
#include "output/json.hpp"
#include "output/log.hpp"
#include "supervise/signals.hpp"

namespace dlock {

/// Calls the command of --hook for each event of the locks. A separate process makes the calls, one
/// after the other, so that neither the lock nor COMMAND waits for them.
class Hook {
 public:
  /// Starts that process, when a SideProcess may be started.
  Hook(const std::string& command, const Log& log);

  /// Environment variables for the call; an empty value removes the variable.
  using Facts = std::vector<std::pair<std::string, std::string>>;
  /// Sends an event and does not wait for the call. Only the first failure is reported.
  void send(const Facts& facts);

  /// Sends no more events and waits for the remaining calls, which have a time limit, or for a
  /// signal.
  void finish(Signals& signals);

 private:
  void warn(const std::string& why);

  const Log& log_;
  std::optional<SideProcess> process_{};
  bool warned_ = false;
};

/// Reports on a run: by --hook during the run, by --metrics and --status-fd at its end.
class RunReport {
 public:
  /// Starts the hook process, if any; the conditions of Hook apply.
  RunReport(const RunSettings& settings, const Log& log);

  /// `where` names the engine, without a password.
  void begin(std::string where) { where_ = std::move(where); }
  void waiting(const LockKey& key, const Refusal& refusal);
  void acquired(const RunStatus& status) { report("acquired", status); }
  /// Only the first call has an effect.
  void lost(const RunStatus& status);
  /// Reports the end; `released` if the locks were released.
  void end(const RunStatus& status, bool released, Signals& signals);

 private:
  void report(const char* event, const RunStatus& status);

  const RunSettings& settings_;
  const Log& log_;
  std::optional<Hook> hook_;
  std::string where_;
  bool loss_reported_ = false;
};

/// The status of a run that `error` prevented.
RunStatus status_of(const Error& error);

/// Writes the status of a run to its --metrics file and its --status-fd, if given.
void write_results(const std::optional<std::string>& metrics_file, const std::vector<LockKey>& keys,
                   std::optional<int> status_fd, const RunStatus& status, const Log& log);

/// The value of DLOCK_KEY: the keys, separated by newlines.
std::string key_list(const std::vector<LockFence>& locks);

}  // namespace dlock
