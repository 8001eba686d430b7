#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/side_process.hpp"
#include "lock/grant.hpp"
#include "output/log.hpp"
#include "supervise/signals.hpp"

namespace dlock {

/// The facts of one call of --hook, its variables DLOCK_EVENT and so on; an empty one is not set.
struct HookCall {
  const char* event;
  std::string keys{};
  std::string fences{};
  std::string holder{};
  std::string reason{};
  std::string exit_code{};
};

/// The call for a command that fails with `error`.
HookCall error_call(const std::vector<LockKey>& keys, const Error& error);

/// The value of DLOCK_KEY: the keys, separated by newlines.
std::string key_list(const std::vector<LockKey>& keys);

/// The value of DLOCK_HOLDER; empty in a cooldown, because the holder has ended.
std::string first_holder(const Refusal& refusal);

/// Calls the command of --hook in a separate process, one call after the other, so that neither the
/// lock nor COMMAND waits for it.
class Hook {
 public:
  /// Starts the process if there is a command: the conditions of SideProcess() apply.
  Hook(const std::optional<std::string>& command, const Log& log);

  /// DLOCK_WHERE of all calls from here on: the engine, without a password.
  void set_where(std::string where) { where_ = std::move(where); }
  /// Asks for a call, without waiting for it. Reports only the first failure.
  void call(const HookCall& facts);
  /// Waits for the remaining calls, which have a time limit, or for a signal. Without `signals` a
  /// signal has the effect that it has elsewhere in this process.
  void finish(Signals* signals);

 private:
  void warn(const std::string& why);

  const Log& log_;
  std::optional<SideProcess> process_{};
  std::string where_;
  bool warned_ = false;
};

}  // namespace dlock
