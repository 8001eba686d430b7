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

/// True once in so many calls, on average: for what is to be done now and then.
bool once_in(int calls);

}  // namespace dlock
