#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.hpp"

namespace dlock {

/// The command that a child executes. The child finds and runs it as execvp(3) does: along PATH, a
/// script without `#!` by /bin/sh.
struct Program {
  std::vector<std::string> argv;
  /// Set on top of dlock's own environment; nothing: taken out of it.
  std::vector<std::pair<std::string, std::optional<std::string>>> environment;
  /// Inherited by dlock but not by the child (--status-fd); -1: none.
  int hidden_fd = -1;
  /// From then on the child does not execute it any more. The child looks at that last, as the
  /// kernel may stop this process or the whole machine for any time before.
  Deadline start_before = never;
};

}  // namespace dlock
