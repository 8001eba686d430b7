#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dlock {

/// Base64 as the JSON of gRPC's gateway encodes bytes (RFC 4648, section 4).
std::string to_base64(std::string_view bytes);

/// Decodes it; returns nothing if `text` is no base64.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace dlock
