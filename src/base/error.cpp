#include "base/error.hpp"

#include <cerrno>
#include <cstring>

namespace dlock {

ExitCode exit_code(Trouble trouble) {
  switch (trouble) {
    case Trouble::usage:
      return ExitCode::usage;
    case Trouble::wrong_data:
      return ExitCode::wrong_data;
    case Trouble::unavailable:
    case Trouble::not_replicated:
      return ExitCode::unavailable;
    case Trouble::host_refused:
      return ExitCode::host_refused;
    case Trouble::denied:
      return ExitCode::denied;
    case Trouble::configuration:
      return ExitCode::configuration;
    case Trouble::bug:
    case Trouble::interrupted:
      return ExitCode::bug;
  }
  return ExitCode::bug;
}

void throw_usage(const std::string& message) { throw Error(Trouble::usage, message); }

void throw_unavailable(const std::string& message) { throw Error(Trouble::unavailable, message); }

void throw_errno(const std::string& doing) {
  throw Error(Trouble::host_refused, doing + ": " + std::strerror(errno));
}

}  // namespace dlock
