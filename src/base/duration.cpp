#include "base/duration.hpp"

#include <charconv>
#include <cstdio>

namespace dlock {
namespace {

struct Unit {
  std::string_view name;
  long long ms;
};

/// Largest first, because `1h30m` names each unit at most once and in this order.
constexpr Unit units[] = {
    {"d", 86'400'000}, {"h", 3'600'000}, {"m", 60'000}, {"s", 1'000}, {"ms", 1}};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string_view take_digits(std::string_view& text) {
  std::size_t n = 0;
  while (n < text.size() && is_digit(text[n])) ++n;
  const auto digits = text.substr(0, n);
  text.remove_prefix(n);
  return digits;
}

std::string_view take_letters(std::string_view& text) {
  std::size_t n = 0;
  while (n < text.size() && text[n] >= 'a' && text[n] <= 'z') ++n;
  const auto letters = text.substr(0, n);
  text.remove_prefix(n);
  return letters;
}

/// Reads a number with at most nine decimal places. Returns its whole part, and its fraction in
/// `billionths`.
std::optional<long long> take_amount(std::string_view& text, long long& billionths) {
  const auto whole = take_digits(text);
  std::string_view fraction;
  if (!text.empty() && text.front() == '.') {
    text.remove_prefix(1);
    fraction = take_digits(text);
    if (fraction.empty()) return std::nullopt;
  }
  if ((whole.empty() && fraction.empty()) || whole.size() > 11 || fraction.size() > 9)
    return std::nullopt;
  billionths = 0;
  for (std::size_t i = 0; i < 9; ++i) {
    billionths = billionths * 10 + (i < fraction.size() ? fraction[i] - '0' : 0);
  }
  return whole.empty() ? 0 : parse_number(whole, 0, 99'999'999'999);
}

const Unit* find_unit(std::string_view name) {
  for (const Unit& unit : units) {
    if (unit.name == name) return &unit;
  }
  return nullptr;
}

/// Reads one number with its unit and returns milliseconds, rounded up. `ceiling_ms` is the last
/// unit seen, and the next must be smaller. A number without a unit is seconds, and must be the
/// whole text.
std::optional<long long> take_part(std::string_view& text, long long& ceiling_ms) {
  const bool first = ceiling_ms == 0;
  long long billionths = 0;
  const auto whole = take_amount(text, billionths);
  if (!whole) return std::nullopt;
  const auto name = take_letters(text);
  const bool bare = name.empty() && text.empty() && first;
  const Unit* unit = find_unit(bare ? "s" : name);
  if (unit == nullptr || (!first && unit->ms >= ceiling_ms)) return std::nullopt;
  ceiling_ms = unit->ms;
  if (*whole > longest_duration.count() / unit->ms + 1) return std::nullopt;
  constexpr long long billion = 1'000'000'000;
  const long long part = (billionths * unit->ms + billion - 1) / billion;
  return *whole * unit->ms + part;
}

}  // namespace

std::optional<milliseconds> parse_duration(std::string_view text) {
  if (text.empty()) return std::nullopt;
  long long total = 0;
  long long ceiling_ms = 0;
  while (!text.empty()) {
    const auto part = take_part(text, ceiling_ms);
    if (!part) return std::nullopt;
    total += *part;
  }
  if (total > longest_duration.count()) return std::nullopt;
  return milliseconds(total);
}

std::optional<long long> parse_number(std::string_view text, long long low, long long high) {
  long long value = 0;
  const char* end = text.data() + text.size();
  if (text.empty() || !is_digit(text.front())) return std::nullopt;
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

std::string exact_duration(std::chrono::nanoseconds span) {
  if (span >= std::chrono::seconds(1))
    return human_duration(std::chrono::floor<milliseconds>(span));
  char text[48];
  std::snprintf(text, sizeof text, "%.1fms", static_cast<double>(span.count()) / 1e6);
  return text;
}

}  // namespace dlock
