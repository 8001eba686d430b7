#pragma once

#include <optional>
#include <string>

#include "base/clock.hpp"

namespace dlock {

/// The time of `17:00` or `17:00:30` (the next after `now`), or of `2026-01-02T03:04`, with seconds
/// or without, by the local clock, unless `Z` or an offset such as `+01:00` follows. Nothing for
/// another text.
std::optional<WallTime> parse_moment(const std::string& text, WallTime now);

}  // namespace dlock
