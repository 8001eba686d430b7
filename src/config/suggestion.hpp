#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dlock {

/// `: did you mean X?` for the candidate nearest to `text`, to be put behind a message; empty if
/// none is near. Near: at most one edit in three characters (inserting, dropping, changing one, or
/// swapping two neighbours: https://en.wikipedia.org/wiki/Damerau-Levenshtein_distance, the
/// optimal string alignment form), or `text` is how the candidate begins.
std::string did_you_mean(std::string_view text, const std::vector<std::string>& candidates);

}  // namespace dlock
