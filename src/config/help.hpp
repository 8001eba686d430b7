#pragma once

#include <optional>
#include <string>

#include "config/options.hpp"

namespace dlock {

/// The help of one command, or of dlock itself; whole lines of at most 80 columns.
std::string help_text(std::optional<Command> command);

}  // namespace dlock
