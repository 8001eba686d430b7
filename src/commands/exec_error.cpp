#include "commands/exec_error.hpp"

#include <cerrno>
#include <cstring>

#include "base/escape.hpp"

namespace dlock {

NotStarted not_started(const std::string& name, int error) {
  const bool missing = error == ENOENT;
  const bool searched = missing && !name.empty() && name.find('/') == std::string::npos;
  const bool shell_line = missing && name.find(' ') != std::string::npos;
  return {"cannot run \"" + escaped(name) + "\": " + std::strerror(error) +
              (searched ? " in PATH" : "") +
              (shell_line ? "; a line for the shell follows -c" : ""),
          missing ? ExitCode::not_found : ExitCode::not_executable};
}

}  // namespace dlock
