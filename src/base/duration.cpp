#include "base/duration.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <iterator>

namespace dlock {
namespace {

struct Unit {
  std::string_view name;
  double ms;
};

/// A duration such as `1h30m` names each unit at most once, and in this order.
constexpr Unit units[] = {
    {"d", 86'400'000}, {"h", 3'600'000}, {"m", 60'000}, {"s", 1'000}, {"ms", 1}};

constexpr std::string_view digits = "0123456789.";

/// Takes the characters of `set` from the front of `text`.
std::string_view take_any(std::string_view& text, std::string_view set) {
  const auto taken = text.substr(0, text.find_first_not_of(set));
  text.remove_prefix(taken.size());
  return taken;
}

/// A decimal number without sign, exponent or a dot at its end.
std::optional<double> decimal(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || text.ends_with('.')) return std::nullopt;
  return value;
}

}  // namespace

std::optional<milliseconds> parse_duration(std::string_view text) {
  // A number without a unit is seconds.
  const bool has_unit = text.find_first_not_of(digits) != std::string_view::npos;
  const std::string all = std::string(text) + (has_unit || text.empty() ? "" : "s");
  std::string_view rest = all;
  double total = 0;
  const Unit* first = std::begin(units);
  do {
    const auto number = decimal(std::string(take_any(rest, digits)));
    const auto name = take_any(rest, "dhms");
    const auto* unit =
        std::find_if(first, std::end(units), [&](const Unit& each) { return each.name == name; });
    if (!number || unit == std::end(units)) return std::nullopt;
    total += *number * unit->ms;
    first = unit + 1;
  } while (!rest.empty());
  // A fraction below 0.1 ns is a rounding error of the floating-point sum: do not round it up.
  constexpr double error = 1e-7;
  const std::chrono::duration<double, std::milli> exact(std::min(total, 1e15) - error);
  const auto span = std::chrono::ceil<milliseconds>(exact);
  return span > longest_duration ? std::nullopt : std::optional(span);
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
