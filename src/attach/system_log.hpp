#pragma once

#include <string>

namespace dlock {

/// Writes an error to the system log as syslog(3) does, for a process that keeps locks: where the
/// logger takes nothing for 200 ms, the line is left out. Called by the attach daemon. `text` is
/// one line and already escaped.
void tell_system_log(const std::string& text);

}  // namespace dlock
