#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "config/options.hpp"

namespace dlock {

/// The help of one command, or of dlock itself; whole lines of at most 80 columns.
std::string help_text(std::optional<Command> command);

/// The text of `dlock --version`: `dlock VERSION`, a line of its own for scripts; then the commit
/// it was built from, unless empty, and the libraries: those inside, with their versions, and those
/// that a run loads when it needs them. Whole lines.
std::string version_text(std::string_view commit);

}  // namespace dlock
