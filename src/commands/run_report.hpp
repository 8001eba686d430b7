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

/// The command of --hook, which is told of what happens to the locks. A process of its own calls
/// it, once an event and in their order, so that neither the lock nor COMMAND waits for it.
class Hook {
 public:
  /// Starts that process, when a SideProcess may be started.
  Hook(const std::string& command, const Log& log);

  /// Variables of the call's environment; "" takes one out.
  using Facts = std::vector<std::pair<std::string, std::string>>;
  /// Waits for no call. Failures are warned of once.
  void tell(const Facts& facts);

  /// No more events: waits for the calls, which end in time by themselves, or for a signal.
  void finish(Signals& signals);

 private:
  void warn(const std::string& why);

  const Log& log_;
  std::optional<SideProcess> process_{};
  bool warned_ = false;
};

/// A run tells programs of itself: by --hook on the way, by --metrics and --status-fd at the end.
class RunReport {
 public:
  /// As Hook.
  RunReport(const RunSettings& settings, const Log& log);

  /// `where` the locks are, without a password.
  void begin(std::string where) { where_ = std::move(where); }
  void waiting(const LockKey& key, const Refusal& refusal);
  void acquired(const std::vector<LockFence>& locks);
  /// Told once.
  void lost(const RunStatus& status);
  /// At the end: `released` if the locks were.
  void end(const RunStatus& status, bool released, Signals& signals);

 private:
  void tell(const char* event, const std::vector<LockFence>& locks, const RunStatus* status);

  const RunSettings& settings_;
  const Log& log_;
  std::optional<Hook> hook_;
  std::string where_;
  bool loss_told_ = false;
};

/// Of a run that `error` kept from being one.
RunStatus status_of(const Error& error);

void write_status(std::optional<int> fd, const RunStatus& status, const Log& log);
void write_metrics(const std::optional<std::string>& file, const std::vector<LockKey>& keys,
                   const RunStatus& status, const Log& log);

/// The keys, as DLOCK_KEY has them: a newline between several.
std::string key_list(const std::vector<LockFence>& locks);

}  // namespace dlock
