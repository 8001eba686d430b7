#include "output/diagnosis.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text.hpp"
#include "doctor/checks.hpp"

namespace dlock {
namespace {

struct LevelStyle {
  const char* name;
  Tone tone;
};

/// One style for each Level, in the order of the enumerators.
constexpr LevelStyle styles[] = {{"ok", Tone::good}, {"warning", Tone::busy}, {"error", Tone::bad}};

const LevelStyle& style_of(Level level) { return styles[static_cast<std::size_t>(level)]; }

constexpr std::size_t level_width = 9;

/// Breaks `text`, which starts after `indent` columns, at blanks before the right edge.
std::string wrapped(const std::string& text, std::size_t indent, std::size_t columns) {
  constexpr std::size_t least_room = 20;
  if (columns < indent + least_room) return text;
  std::string lines;
  std::size_t used = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view word = take_until(rest, ' ');
    const bool fits = used + 1 + display_width(word) <= columns - indent;
    if (used > 0) lines += fits ? " " : "\n" + std::string(indent, ' ');
    used = (used > 0 && fits ? used + 1 : 0) + display_width(word);
    lines += word;
  }
  return lines;
}

Finding verdict_line(const Diagnosis& diagnosis) {
  long long warnings = 0, errors = 0;
  std::string untold;
  for (const Finding& each : diagnosis.findings) {
    if (each.level == Level::warning) ++warnings;
    if (each.level == Level::error) ++errors;
    if (!each.told) untold += (untold.empty() ? "" : ", ") + each.check;
  }
  const std::string with = warnings == 0 ? "" : ", " + counted(warnings, "warning");
  std::string text = errors == 0 ? "fit to hold locks" + with
                                 : "not fit to hold locks: " + counted(errors, "error") + with;
  if (!untold.empty()) text += ", as far as it tells; not told: " + untold;
  return {diagnosis.verdict(), "verdict", text};
}

}  // namespace

std::string diagnosis_text(const Diagnosis& diagnosis, const Screen& screen) {
  const std::size_t columns = screen.is_terminal ? screen.columns : 0;
  Findings lines = diagnosis.findings;
  lines.push_back(verdict_line(diagnosis));
  std::size_t check_width = 0;
  for (const Finding& each : lines) check_width = std::max(check_width, each.check.size() + 2);
  std::string text = screen.toned(diagnosis.server, Tone::title) + "\n";
  for (const Finding& each : lines) {
    const std::string advice = each.advice.empty() ? "" : " -> " + each.advice;
    const std::string level = style_of(each.level).name;
    text += screen.toned(level, style_of(each.level).tone) +
            std::string(level_width - level.size(), ' ') + each.check +
            std::string(check_width - each.check.size(), ' ') +
            wrapped(each.text + advice, level_width + check_width, columns) + "\n";
  }
  return text;
}

std::string diagnosis_json(const Diagnosis& diagnosis) {
  using Json = nlohmann::ordered_json;
  Json json{{"server", diagnosis.server},
            {"label", diagnosis.label},
            {"verdict", style_of(diagnosis.verdict()).name},
            {"checks", Json::array()}};
  for (const Finding& each : diagnosis.findings) {
    json["checks"].push_back({{"check", each.check},
                              {"level", style_of(each.level).name},
                              {"text", each.text},
                              {"advice", each.advice}});
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace dlock
