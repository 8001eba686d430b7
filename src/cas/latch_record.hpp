#pragma once

#include <optional>
#include <string>

#include "cas/cas_backend.hpp"
#include "lock/latch.hpp"

namespace dlock {

/// A latch as its record holds it. Its arrivals are records of their own, so that clients that
/// arrive together do not wait for each other.
struct LatchRecord {
  std::int64_t count = 0;
  microseconds ends{0};    ///< by the place's clock
  std::string generation;  ///< random: which of all latches of this name
  bool open = false;       ///< all have arrived, and the waiters were told
};

std::string latch_text(const LatchRecord& latch);

/// The latch in a record; nothing if there is none, or it has ended. Throws Error{wrong_data} if
/// the record holds anything else; `where` names the place.
std::optional<LatchRecord> latch_in(const Snapshot& seen, const std::string& where);

}  // namespace dlock
