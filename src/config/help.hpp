#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "config/options.hpp"

namespace dlock {

/// The help of one command, or of dlock itself, in whole lines of at most 80 columns.
std::string help_text(std::optional<Command> command);

/// The output of `dlock --version` in whole lines: `dlock VERSION` on a line of its own, for
/// scripts; the commit, unless empty; the linked libraries with their versions; and the libraries
/// that a run loads when needed.
std::string version_text(std::string_view commit);

}  // namespace dlock
