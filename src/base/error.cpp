#include "base/error.hpp"

#include <cerrno>
#include <cstring>

namespace dlock {

ExitCode exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::usage:
      return ExitCode::usage;
    case ErrorKind::wrong_data:
      return ExitCode::wrong_data;
    case ErrorKind::unavailable:
    case ErrorKind::not_replicated:
      return ExitCode::unavailable;
    case ErrorKind::host_refused:
      return ExitCode::host_refused;
    case ErrorKind::denied:
      return ExitCode::denied;
    case ErrorKind::configuration:
      return ExitCode::configuration;
    case ErrorKind::bug:
    case ErrorKind::interrupted:
      return ExitCode::bug;
  }
  return ExitCode::bug;
}

void throw_usage(const std::string& message) { throw Error(ErrorKind::usage, message); }

void throw_unavailable(const std::string& message, Cause cause) {
  throw Error(ErrorKind::unavailable, message, cause);
}

void throw_interrupted() { throw Error(ErrorKind::interrupted, "interrupted"); }

void throw_errno(const std::string& doing) {
  throw Error(ErrorKind::host_refused, doing + ": " + std::strerror(errno));
}

}  // namespace dlock
