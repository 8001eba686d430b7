#pragma once

#include <string>

#include "base/endpoint.hpp"

namespace dlock {

/// A reader of passwords that expire: it runs `command` by /bin/sh, in a SideProcess, and returns
/// the line that the command writes. Throws Error{usage} if there is none within ten seconds. If a
/// call ends earlier, the next one gets its password.
Password::Read password_command(const std::string& command);

}  // namespace dlock
