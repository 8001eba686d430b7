#pragma once

#include <string>

#include "base/error.hpp"

namespace dlock {

/// Why COMMAND could not be executed, for people, and dlock's exit code for that.
struct NotStarted {
  std::string reason;
  ExitCode exit_code;
};

/// `name` is argv[0] of COMMAND, `error` the errno of exec.
NotStarted not_started(const std::string& name, int error);

}  // namespace dlock
