#pragma once

#include <string>
#include <string_view>

namespace dlock {

/// The SHA-256 of `bytes`, in lower-case hex. Loads OpenSSL at the first call, and throws
/// Error{host_refused} if it is not installed.
std::string sha256_hex(std::string_view bytes);

}  // namespace dlock
