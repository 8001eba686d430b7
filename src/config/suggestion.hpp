#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dlock {

/// Returns `: did you mean X?` with the candidate nearest to `text`, for the end of a message;
/// empty if none is near. Near means at most one edit for every three characters (insert, delete or
/// change one, or swap two neighbours: https://en.wikipedia.org/wiki/Damerau-Levenshtein_distance,
/// the optimal string alignment form), or that the candidate begins with `text`.
std::string did_you_mean(std::string_view text, const std::vector<std::string>& candidates);

// Spellings that users know from other lock tools, and dlock's equivalents, for the parser.

/// Advice for `-X` or `--NAME` if it is a flag of flock that dlock does not have.
std::optional<std::string> refusal_of(std::string_view spelled);

/// The long name of dlock's option for another tool's flag: "force" for `-f`; empty if none.
std::string_view option_meant(std::string_view spelled);

/// The dlock command for another tool's word: "dlock inspect" for `list`; empty if none.
std::string_view command_meant(std::string_view name);

}  // namespace dlock
