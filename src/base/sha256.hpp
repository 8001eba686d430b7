#pragma once

#include <string>
#include <string_view>

namespace dlock {

/// SHA-256 of `text` (FIPS 180-4), as 64 lower-case hex digits.
std::string sha256_hex(std::string_view text);

}  // namespace dlock
