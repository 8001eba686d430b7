#pragma once

#include <chrono>
#include <string>
#include <utility>

#include "doctor/facts.hpp"
#include "doctor/finding.hpp"

namespace dlock {

// How findings are worded.

inline Finding good(std::string check, std::string text) {
  return {Level::ok, std::move(check), std::move(text), ""};
}
inline Finding warn(std::string check, std::string text, std::string advice) {
  return {Level::warning, std::move(check), std::move(text), std::move(advice)};
}
inline Finding bad(std::string check, std::string text, std::string advice) {
  return {Level::error, std::move(check), std::move(text), std::move(advice)};
}
/// A check that cannot be made is no fault: `INFO: NOPERM`.
inline Finding not_told(std::string check, const std::string& why) {
  return {Level::ok, std::move(check), "not told (" + why + ")", "", false};
}

/// `0.21 ms`, `12 ms`, `2.5 s`.
std::string span_text(std::chrono::nanoseconds span);
/// `1.2M`, as redis.conf has it.
std::string size_text(long long bytes);
/// `1 replica`, `2 replicas`.
std::string counted(long long number, const std::string& noun);
/// The numbers before the first dot of a version and after it.
using ShortVersion = std::pair<long long, long long>;
/// Whether a version is older than `least`; false for what is none.
bool is_older(const std::string& version, ShortVersion least);
/// Why something is not told: `INFO: NOPERM, CONFIG: unknown command`.
std::string refusals(const ServerFacts& facts);

}  // namespace dlock
