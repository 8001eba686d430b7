#include "output/columns.hpp"

#include <algorithm>
#include <iterator>
#include <span>

#include "base/escape.hpp"
#include "output/glyphs.hpp"

namespace dlock {
namespace {

bool is_in(std::span<const CodeRange> ranges, std::uint32_t value) {
  const auto behind = std::upper_bound(
      ranges.begin(), ranges.end(), value,
      [](std::uint32_t sought, const CodeRange& range) { return sought < range.first; });
  return behind != ranges.begin() && value <= std::prev(behind)->last;
}

struct Glyph {
  std::size_t bytes;
  std::size_t columns;
};

Glyph first_glyph(std::string_view text) {
  const auto point = first_code_point(text);
  if (!point) return {1, 1};
  if (is_in(zero_width_glyphs, point->value)) return {point->bytes, 0};
  return {point->bytes, is_in(wide_glyphs, point->value) ? std::size_t{2} : std::size_t{1}};
}

}  // namespace

std::size_t display_width(std::string_view text) {
  std::size_t columns = 0;
  while (!text.empty()) {
    const Glyph glyph = first_glyph(text);
    columns += glyph.columns;
    text.remove_prefix(glyph.bytes);
  }
  return columns;
}

std::string cut_to(std::string_view text, std::size_t columns, std::string_view mark) {
  if (display_width(text) <= columns) return std::string(text);
  const std::size_t mark_width = display_width(mark);
  if (columns < mark_width) return "";
  std::size_t used = 0;
  std::size_t bytes = 0;
  while (true) {
    const Glyph glyph = first_glyph(text.substr(bytes));
    if (used + glyph.columns + mark_width > columns) break;
    used += glyph.columns;
    bytes += glyph.bytes;
  }
  return std::string(text.substr(0, bytes)) + std::string(mark);
}

}  // namespace dlock
