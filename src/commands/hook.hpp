#pragma once

#include <optional>
#include <string>

#include "base/side_process.hpp"
#include "output/log.hpp"
#include "supervise/signals.hpp"

namespace dlock {

/// The facts of one call of --hook, its variables DLOCK_EVENT and so on; an empty one is not set.
struct HookCall {
  const char* event;
  std::string keys;
  std::string fences;
  std::string holder;
  std::string reason;
  std::string exit_code;
  std::string where;
};

/// Calls the command of --hook in a separate process, one call after the other, so that neither the
/// lock nor COMMAND waits for it.
class Hook {
 public:
  /// Starts the process if there is a command: the conditions of SideProcess() apply.
  Hook(const std::optional<std::string>& command, const Log& log);

  /// Asks for a call, without waiting for it. Reports only the first failure.
  void call(const HookCall& facts);
  /// Waits for the remaining calls, which have a time limit, or for a signal.
  void finish(Signals& signals);

 private:
  void warn(const std::string& why);

  const Log& log_;
  std::optional<SideProcess> process_{};
  bool warned_ = false;
};

}  // namespace dlock
