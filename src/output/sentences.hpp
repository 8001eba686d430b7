#pragma once

#include <string>

#include "lock/store.hpp"

namespace dlock {

/// Sentences for people, on one line, escaped, without "dlock: " in front.

/// `deploy@web1 pid 4242 (backup.sh)`, with `[label]` behind it if there is one.
std::string who_text(const Who& who);

/// `nightly is held by deploy@web1 pid 4242 (backup.sh) for 1m01s, lease 24s left, 2 waiting`.
std::string refusal_text(const LockKey& key, const Refusal& refusal);

/// `nightly is held on 3 of 5 servers, and 3 are needed: redis://db4: no answer; …`.
std::string margin_text(const LockKey& key, const Margin& margin);

}  // namespace dlock
