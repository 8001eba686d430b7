#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dlock {

/// Returns `: did you mean X?` with the candidate nearest to `text`, for the end of a message;
/// empty if none is near. Near means at most one edit for every three characters (insert, delete or
/// change one, or swap two neighbours: https://en.wikipedia.org/wiki/Damerau-Levenshtein_distance,
/// the optimal string alignment form), or that the candidate begins with `text`.
std::string did_you_mean(std::string_view text, const std::vector<std::string>& candidates);

}  // namespace dlock
