#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/side_process.hpp"
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

}  // namespace dlock
