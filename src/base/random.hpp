#pragma once

#include <cstddef>
#include <string>

#include "base/clock.hpp"

namespace dlock {

/// Returns `bytes` random bytes from getrandom(2) as lower-case hex.
std::string random_hex(std::size_t bytes);

/// Returns a random time of whole milliseconds from zero to `most`, both included; used for pauses,
/// so that several clients do not retry at the same moment.
milliseconds random_up_to(milliseconds most);

/// Returns true once in `calls` calls on average; used for occasional clean-up.
bool once_in(int calls);

}  // namespace dlock
