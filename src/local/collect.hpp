#pragma once

#include "local/directory.hpp"

namespace dlock {

/// Removes files that nobody needs: those of keys that have been free for a week (they keep the
/// fence until then), those of latches that expired that long ago, and FIFOs of killed processes.
/// It checks only a few names. Called whenever a new key's file was created, it keeps the directory
/// as small as its use.
void collect_garbage(const Directory& directory);

}  // namespace dlock
