#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/fd.hpp"
#include "output/log.hpp"
#include "supervise/signals.hpp"

namespace dlock {

/// The command of --hook, which is told of what happens to the locks. A process of its own calls
/// it, once an event and in their order, so that neither the lock nor COMMAND waits for it.
class Hook {
 public:
  /// Starts that process: before dlock opens anything that it would keep open, has a thread, or
  /// blocks a signal, and before ProcessTree, which then takes it for none of COMMAND's.
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
  Fd channel_;
  bool warned_ = false;
};

}  // namespace dlock
