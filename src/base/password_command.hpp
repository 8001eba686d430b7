#pragma once

#include <string>

#include "base/endpoint.hpp"

namespace dlock {

/// What runs `command` by /bin/sh, in a SideProcess, and returns the line that it writes: a
/// password that expires. Throws Error{usage} where there is none within ten seconds. A call that
/// ends before leaves its password to the next one.
Password::Read password_command(const std::string& command);

}  // namespace dlock
