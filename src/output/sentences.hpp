#pragma once

#include <string>

#include "lock/grant.hpp"

namespace dlock {

/// Sentences for people, on one line, escaped, without "dlock: " in front.

/// `deploy@web1 pid 4242 (backup.sh)`, with `[label]` behind it if there is one.
std::string who_text(const Who& who);

/// `nightly is held by deploy@web1 pid 4242 (backup.sh) for 1m01s, lease 24s left, 2 waiting`.
std::string refusal_text(const LockKey& key, const Refusal& refusal);

}  // namespace dlock
