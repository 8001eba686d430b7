#pragma once

#include <string>
#include <vector>

namespace dlock {

/// Whether all of `text` is as one of `globs` says, by the rules of fnmatch(3): what `inspect` and
/// `release --force` may name keys by.
bool matches_any(const std::string& text, const std::vector<std::string>& globs);

}  // namespace dlock
