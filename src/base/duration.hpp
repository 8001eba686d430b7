#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.hpp"

namespace dlock {

constexpr milliseconds longest_duration = std::chrono::hours(24 * 365);

/// Parses `10`, `0.25`, `.5` (seconds), `500ms`, `30s`, `5m`, `1h30m`, `1d`; decimal, at most 365
/// days. Rounds a fraction of a millisecond up. Returns nothing for any other text.
std::optional<milliseconds> parse_duration(std::string_view text);

/// Parses a decimal number in [low, high], without sign or blanks; returns nothing for any other
/// text.
std::optional<long long> parse_number(std::string_view text, long long low, long long high);

/// An age for people: `850ms`, `7s`, `1m01s`, `2h05m`, `3d04h`.
std::string human_duration(milliseconds span);

}  // namespace dlock
