#include "output/kinds.hpp"

#include <algorithm>
#include <array>

#include "base/duration.hpp"
#include "output/columns.hpp"

namespace dlock {
namespace {

constexpr std::size_t kinds_columns = 6;
using KindCells = std::array<std::string, kinds_columns>;

KindCells cells_of(const KindRow& row, const Screen& screen) {
  const Holder& holder = row.holder;
  const bool since_is_known = holder.acquired_at != WallTime{};
  return {screen.shown(row.key),
          screen.shown(row.library),
          row.kind,
          holder.who.host.empty() ? "-" : screen.shown(holder.who.host),
          since_is_known ? iso8601(holder.acquired_at) : "-",
          holder.lease_left ? human_duration(*holder.lease_left) : "no expiry"};
}

}  // namespace

std::string kinds_text(const std::vector<KindRow>& rows, const Screen& screen) {
  if (rows.empty()) return "";
  std::vector<KindCells> lines{{"KEY", "LIBRARY", "KIND", "HOST", "SINCE", "LEASE"}};
  for (const KindRow& row : rows) lines.push_back(cells_of(row, screen));
  std::array<std::size_t, kinds_columns> widths{};
  for (const KindCells& line : lines) {
    for (std::size_t i = 0; i < kinds_columns; ++i) {
      widths[i] = std::max(widths[i], display_width(line[i]));
    }
  }
  std::string text;
  for (std::size_t n = 0; n < lines.size(); ++n) {
    std::string line;
    for (std::size_t i = 0; i < kinds_columns; ++i) {
      line += lines[n][i];
      if (i + 1 < kinds_columns) line.append(widths[i] - display_width(lines[n][i]) + 2, ' ');
    }
    const bool is_stuck = n > 0 && !rows[n - 1].holder.lease_left;
    const std::string fitted = screen.fitted(line, screen.columns);
    text += screen.toned(fitted, n == 0 ? Tone::faint : is_stuck ? Tone::bad : Tone::plain) + "\n";
  }
  return text;
}

}  // namespace dlock
