#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/side_process.hpp"
#include "config/settings.hpp"
#include "output/json.hpp"
#include "output/log.hpp"
#include "supervise/signals.hpp"

namespace dlock {

/// Reports on a run: by --hook during the run, by --metrics and --status-fd at its end. A separate
/// process calls the command of --hook, one call after the other, so that neither the lock nor
/// COMMAND waits for it.
class RunReport {
 public:
  /// Starts the side process if there is a --hook: the conditions of SideProcess() apply.
  RunReport(const RunSettings& settings, const Log& log);

  /// `where` names the engine, without a password.
  void begin(std::string where) { where_ = std::move(where); }
  void waiting(const LockKey& key, const Refusal& refusal);
  void acquired(const RunStatus& status) { report("acquired", status); }
  /// Only the first call has an effect.
  void lost(const RunStatus& status);
  /// Reports the end; `released` if the locks were released. Waits for the remaining calls of the
  /// hook, which have a time limit, or for a signal.
  void end(const RunStatus& status, bool released, Signals& signals);
  /// Writes the status to the --metrics file and the --status-fd, if given.
  void write(const RunStatus& status);

 private:
  void report(const char* event, const RunStatus& status);
  void call_hook(const char* event, const std::string& keys, const std::string& fences,
                 const std::string& holder, const std::string& reason,
                 const std::string& exit_code);
  void finish_hook(Signals& signals);
  void warn(const std::string& why);

  const RunSettings& settings_;
  const Log& log_;
  std::optional<SideProcess> hook_{};
  bool warned_ = false;
  std::string where_;
  bool loss_reported_ = false;
};

/// The value of DLOCK_KEY: the keys, separated by newlines.
std::string key_list(const std::vector<LockFence>& locks);

}  // namespace dlock
