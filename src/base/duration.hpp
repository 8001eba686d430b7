#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.hpp"

namespace dlock {

constexpr milliseconds longest_duration = std::chrono::hours(24 * 365);

/// `10`, `0.25`, `.5` (seconds), `500ms`, `30s`, `5m`, `1h30m`, `1d`; decimal, at most 365 days, at
/// least as exact as a millisecond (what is finer is rounded up). Nothing where `text` is anything
/// else.
std::optional<milliseconds> parse_duration(std::string_view text);

/// A decimal number of [low, high] and nothing else; no sign, no blanks.
std::optional<long long> parse_number(std::string_view text, long long low, long long high);

/// How people read an age: `850ms`, `7s`, `1m01s`, `2h05m`, `3d04h`.
std::string human_duration(milliseconds span);

/// How long a step took: `0.4ms`, `12.3ms`, and from a second on as above.
std::string exact_duration(std::chrono::nanoseconds span);

}  // namespace dlock
