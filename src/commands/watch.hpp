#pragma once

#include <string>
#include <vector>

#include "config/settings.hpp"
#include "lock/grant.hpp"
#include "output/log.hpp"
#include "output/screen.hpp"

namespace dlock {

/// The output of `inspect` for `states`.
std::string inspect_text(const InspectSettings& settings, const std::vector<KeyState>& states,
                         const Screen& screen);

/// Runs `inspect --watch`: shows the locks until a signal ends it, and dies by that signal.
[[noreturn]] void watch(const InspectSettings& settings, const Log& log);

}  // namespace dlock
