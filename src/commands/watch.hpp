#pragma once

#include <string>
#include <vector>

#include "config/settings.hpp"
#include "lock/grant.hpp"
#include "output/log.hpp"
#include "output/screen.hpp"

namespace dlock {

/// What `inspect` prints of `states`.
std::string inspect_text(const InspectSettings& settings, const std::vector<KeyState>& states,
                         const Screen& screen);

/// `inspect --watch`: shows the locks until a signal ends it, by which it then dies.
[[noreturn]] void watch(const InspectSettings& settings, const Log& log);

}  // namespace dlock
