#pragma once

#include <string>

#include "base/error.hpp"

namespace dlock {

/// Why COMMAND could not be executed, for people, and what dlock exits with then.
struct NotStarted {
  std::string reason;
  ExitCode exit_code;
};

/// `name`: argv[0] of COMMAND; `error`: what exec failed with.
NotStarted not_started(const std::string& name, int error);

}  // namespace dlock
