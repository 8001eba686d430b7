#include "config/did_you_mean.hpp"

#include <algorithm>

namespace dlock {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> best(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) best[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) best[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = best[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      best[i][j] = std::min({best[i - 1][j] + 1, best[i][j - 1] + 1, change});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) best[i][j] = std::min(best[i][j], best[i - 2][j - 2] + 1);
    }
  }
  return best[a.size()][b.size()];
}

std::size_t letters(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return c != '-'; }));
}

}  // namespace

std::string did_you_mean(std::string_view text, const std::vector<std::string>& candidates) {
  // Longer texts are not typing errors, and the table of distances stays small.
  constexpr std::size_t longest = 64;
  if (text.size() > longest || letters(text) < 2) return "";
  const std::string* nearest = nullptr;
  std::size_t least = std::max<std::size_t>(1, letters(text) / 3) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = candidate.starts_with(text) ? 1 : edit_distance(text, candidate);
    if (distance >= least) continue;
    least = distance;
    nearest = &candidate;
  }
  return nearest == nullptr ? "" : ": did you mean " + *nearest + "?";
}

}  // namespace dlock
