#pragma once

#include "base/error.hpp"
#include "config/settings.hpp"
#include "output/log.hpp"

namespace dlock {

/// One function a command: each does what `settings` says and returns what dlock exits with.
/// Trouble is thrown as Error, for main to tell. Those of run, acquire, latch and guard may end the
/// process by a signal instead, as their user would expect of the signal.
int carry_out(const RunSettings& settings, const Log& log);
int carry_out(const AcquireSettings& settings, const Log& log);
int carry_out(const RenewSettings& settings, const Log& log);
int carry_out(const ReleaseSettings& settings, const Log& log);
int carry_out(const InspectSettings& settings, const Log& log);
int carry_out(const LatchSettings& settings, const Log& log);
int carry_out(const DoctorSettings& settings, const Log& log);
int carry_out(const GuardSettings& settings, const Log& log);

/// Writes the --metrics and to the --status-fd of a `run` that `error` in its settings kept from
/// being run.
void report_unusable_settings(const CommandLine& line, const Error& error);

}  // namespace dlock
