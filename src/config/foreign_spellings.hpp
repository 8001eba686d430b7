#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dlock {

// What other lock tools taught people to type, and what dlock has for it. The parser asks.

/// flock's flags that dlock does not have: what to say instead, for `-X` or `--NAME`.
std::optional<std::string> refusal_of(std::string_view spelled);

/// The long name of the option that is meant by another tool's: "force" for `-f`; empty if none.
std::string_view option_meant(std::string_view spelled);

/// The command line that is meant by another tool's word for it: "dlock inspect" for `list`; empty
/// if none.
std::string_view command_meant(std::string_view name);

}  // namespace dlock
