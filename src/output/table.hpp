#pragma once

#include <string>
#include <vector>

#include "lock/grant.hpp"
#include "output/screen.hpp"

namespace dlock {

/// The latch of one key, the holders of its lock, and below them the queue, in aligned columns;
/// what does not fit beside stands below, and everything fits the screen. `free` where there is
/// neither, and who held it last.
std::string key_text(const KeyState& state, const Screen& screen);

/// One row a key, under a line of headings, in aligned columns; nothing at all for no keys. On a
/// terminal too narrow for it the longest cells are cut, and the columns missed least left out.
std::string overview_text(const std::vector<KeyState>& states, const Screen& screen);

}  // namespace dlock
