#pragma once

#include <cstddef>
#include <string>

#include "base/clock.hpp"

namespace dlock {

/// `bytes` random bytes from getrandom(2), as lower-case hex.
std::string random_hex(std::size_t bytes);

/// Any span of whole milliseconds from zero to `most`, both included: for pauses that must not
/// fall together.
milliseconds random_up_to(milliseconds most);

}  // namespace dlock
