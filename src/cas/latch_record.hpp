#pragma once

#include <optional>
#include <string>

#include "cas/cas_backend.hpp"
#include "lock/latch.hpp"

namespace dlock {

/// A latch as its record stores it. Each arrival is a record of its own, so that simultaneous
/// arrivals do not wait for each other.
struct LatchRecord {
  std::int64_t count = 0;
  microseconds ends{0};    ///< by the engine's clock
  std::string generation;  ///< random: tells latches of the same name apart
  bool open = false;       ///< all have arrived, and the waiters were notified
};

std::string latch_text(const LatchRecord& latch);

/// Returns the latch in a record; nothing if there is none, or it has expired. Throws
/// Error{wrong_data} if the record holds anything else; `where` names the engine.
std::optional<LatchRecord> latch_in(const Snapshot& seen, const std::string& where);

}  // namespace dlock
