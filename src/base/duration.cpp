#include "base/duration.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <iterator>

namespace dlock {
namespace {

struct Unit {
  std::string_view name;
  long long ms;
};

/// Largest first, because `1h30m` names each unit at most once and in this order.
constexpr Unit units[] = {
    {"d", 86'400'000}, {"h", 3'600'000}, {"m", 60'000}, {"s", 1'000}, {"ms", 1}};

/// Takes the characters of `set` from the front of `text`.
std::string_view take_any(std::string_view& text, std::string_view set) {
  const auto taken = text.substr(0, text.find_first_not_of(set));
  text.remove_prefix(taken.size());
  return taken;
}

/// Reads a number with at most nine decimal places. Returns its whole part, and its fraction in
/// `billionths`.
std::optional<long long> take_amount(std::string_view& text, long long& billionths) {
  constexpr std::string_view digits = "0123456789";
  constexpr std::size_t most_digits = 11, most_places = 9;
  const std::string whole(take_any(text, digits));
  std::string fraction;
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    fraction = take_any(text, digits);
    if (fraction.empty()) return std::nullopt;
  }
  if (whole.size() + fraction.size() == 0 || whole.size() > most_digits ||
      fraction.size() > most_places) {
    return std::nullopt;
  }
  fraction.resize(most_places, '0');
  billionths = std::stoll(fraction);
  return whole.empty() ? 0 : std::stoll(whole);
}

/// Reads one number with its unit and returns milliseconds, rounded up. `ceiling_ms` is the last
/// unit seen, and the next must be smaller. A number without a unit is seconds, and must be the
/// whole text.
std::optional<long long> take_part(std::string_view& text, long long& ceiling_ms) {
  const bool first = ceiling_ms == 0;
  long long billionths = 0;
  const auto whole = take_amount(text, billionths);
  if (!whole) return std::nullopt;
  auto name = take_any(text, "dhms");
  if (name.empty() && text.empty() && first) name = "s";
  const auto* unit = std::find_if(std::begin(units), std::end(units),
                                  [&](const Unit& each) { return each.name == name; });
  if (unit == std::end(units) || (!first && unit->ms >= ceiling_ms)) return std::nullopt;
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
