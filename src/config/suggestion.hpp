#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dlock {

/// `: did you mean X?` for the candidate nearest to `text`, to be put behind a message; empty if
/// none is near. Near: at most one edit in three characters (inserting, dropping, changing one, or
/// swapping two neighbours: https://en.wikipedia.org/wiki/Damerau-Levenshtein_distance, the
/// optimal string alignment form), or `text` is how the candidate begins.
std::string did_you_mean(std::string_view text, const std::vector<std::string>& candidates);

// What other lock tools taught people to type, and what dlock has for it. The parser asks.

/// flock's flags that dlock does not have: what to say instead, for `-X` or `--NAME`.
std::optional<std::string> refusal_of(std::string_view spelled);

/// The long name of the option that is meant by another tool's: "force" for `-f`; empty if none.
std::string_view option_meant(std::string_view spelled);

/// The command line that is meant by another tool's word for it: "dlock inspect" for `list`; empty
/// if none.
std::string_view command_meant(std::string_view name);

}  // namespace dlock
