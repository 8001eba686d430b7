#pragma once

#include <string>
#include <vector>

#include "lock/grant.hpp"

namespace dlock {

/// Holders and queue of one key, a line each; `free` for a free key.
std::string key_text(const KeyState& state);

/// One row a key, under a line of headings, in aligned columns; nothing at all for no keys.
std::string overview_text(const std::vector<KeyState>& states);

}  // namespace dlock
