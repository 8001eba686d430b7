#include "base/duration.hpp"

#include <charconv>
#include <cstdio>

namespace dlock {

std::optional<long long> parse_number(std::string_view text, long long low, long long high) {
  long long value = 0;
  const char* end = text.data() + text.size();
  if (text.starts_with('-')) return std::nullopt;
  const auto [stop, fault] = std::from_chars(text.data(), end, value);
  if (fault != std::errc() || stop != end || value < low || value > high) return std::nullopt;
  return value;
}

std::string human_duration(milliseconds span) {
  const long long ms = span.count();
  const long long s = ms / 1000;
  char text[48];
  if (ms < 1000) {
    std::snprintf(text, sizeof text, "%lldms", ms);
  } else if (s < 60) {
    std::snprintf(text, sizeof text, "%llds", s);
  } else if (s < 3600) {
    std::snprintf(text, sizeof text, "%lldm%02llds", s / 60, s % 60);
  } else if (s < 86'400) {
    std::snprintf(text, sizeof text, "%lldh%02lldm", s / 3600, s / 60 % 60);
  } else {
    std::snprintf(text, sizeof text, "%lldd%02lldh", s / 86'400, s / 3600 % 24);
  }
  return text;
}

}  // namespace dlock
