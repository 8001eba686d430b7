#pragma once

#include <cstddef>
#include <string>

namespace dlock {

/// `bytes` random bytes from getrandom(2), as lower-case hex.
std::string random_hex(std::size_t bytes);

}  // namespace dlock
