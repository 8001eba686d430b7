#pragma once

#include <string>

#include "base/error.hpp"

namespace dlock {

/// What to do about a server with this trouble; `otherwise` if its cause does not say.
std::string advice_on(Cause cause, const char* otherwise);
/// The same about a server that could not be used at all.
std::string advice_on_reach(Cause cause);

}  // namespace dlock
