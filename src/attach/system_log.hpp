#pragma once

#include <string>

namespace dlock {

/// Writes an error to the system log as syslog(3) does, but drops it if the logger accepts nothing
/// for 200 ms: the attach daemon, which calls it, must not block. `text` is one line and already
/// escaped.
void write_system_log(const std::string& text);

}  // namespace dlock
