#pragma once

#include <cerrno>

#include "base/error.hpp"
#include "config/settings.hpp"
#include "output/log.hpp"

namespace dlock {

/// One function for each command: it does what `settings` say and returns dlock's exit code. It
/// throws Error, which main reports. A command that handles signals may instead end the process by
/// a signal that it got.
int carry_out(const RunSettings& settings, const Log& log);
int carry_out(const AcquireSettings& settings, const Log& log);
int carry_out(const RenewSettings& settings, const Log& log);
int carry_out(const ReleaseSettings& settings, const Log& log);
int carry_out(const InspectSettings& settings, const Log& log);
int carry_out(const LatchSettings& settings, const Log& log);
int carry_out(const DoctorSettings& settings, const Log& log);
int carry_out(const GuardSettings& settings, const Log& log);

/// Writes the --metrics file and the --status-fd of a `run` whose settings are invalid (`error`).
void report_unusable_settings(const CommandLine& line, const Error& error);

/// dlock's exit code if COMMAND could not be executed; `error` is the errno of exec.
constexpr ExitCode exec_exit_code(int error) {
  return error == ENOENT ? ExitCode::not_found : ExitCode::not_executable;
}

}  // namespace dlock
