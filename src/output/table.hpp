#pragma once

#include <string>
#include <vector>

#include "lock/grant.hpp"
#include "output/json.hpp"
#include "output/screen.hpp"

namespace dlock {

/// The latch of one key, the holders of its lock, and the queue below them, in aligned columns.
/// Cells that do not fit go to the next line, so that everything fits the screen. A free key shows
/// `free` and its last holder.
std::string key_text(const KeyState& state, const Screen& screen);

/// A heading line and one row for each key, in aligned columns; empty if there are no keys. If the
/// terminal is too narrow, the longest cells are cut, and the least important columns left out.
std::string overview_text(const std::vector<KeyState>& states, const Screen& screen);

/// The same for `inspect --all-kinds`: one row for each lock. Locks that never expire are red.
std::string kinds_text(const std::vector<KindRow>& kinds, const Screen& screen);

}  // namespace dlock
