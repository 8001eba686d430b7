#pragma once

#include "base/error.hpp"
#include "config/flags.hpp"
#include "config/settings.hpp"
#include "output/log.hpp"

namespace dlock {

/// One function a command: each does what `settings` says and returns what dlock exits with.
/// Trouble is thrown as Error, for main to tell. run_command, acquire_command, latch_command and
/// guard_command may end the process by a signal instead, as their user would expect of the signal.
int run_command(const Settings& settings, const Log& log);
int acquire_command(const Settings& settings, const Log& log);
int renew_command(const Settings& settings, const Log& log);
int release_command(const Settings& settings, const Log& log);
int inspect_command(const Settings& settings, const Log& log);
int latch_command(const Settings& settings, const Log& log);
int doctor_command(const Settings& settings, const Log& log);
int guard_command(const Settings& settings, const Log& log);

/// Writes the --metrics and to the --status-fd of a `run` that `error` in its settings kept from
/// being run.
void report_unusable_settings(const Flags& flags, const Error& error);

}  // namespace dlock
