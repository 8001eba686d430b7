#include "commands/exec_error.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/text.hpp"

namespace dlock {

NotStarted not_started(const std::string& name, int error) {
  const bool missing = error == ENOENT;
  const bool searched = missing && !name.empty() && name.find('/') == std::string::npos;
  const bool shell_line = missing && name.find(' ') != std::string::npos;
  // execve(2): then the interpreter of its first line is missing.
  const bool is_there = missing && !searched && access(name.c_str(), F_OK) == 0;
  return {
      "cannot run \"" + escaped(name) + "\": " + std::strerror(error) +
          (searched ? " in PATH" : "") +
          (is_there
               ? ": it is there, but the interpreter in its first line is not; does that line end "
                 "in CR LF?"
               : "") +
          (shell_line && !is_there ? "; a line for the shell follows -c" : ""),
      missing ? ExitCode::not_found : ExitCode::not_executable};
}

}  // namespace dlock
