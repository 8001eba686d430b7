#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "support/heart.hpp"
#include "support/stall_witness.hpp"

namespace dlock::test {

/// One grant of an exclusive lock, as far as the test knows. All times are of BootClock.
struct Held {
  std::int64_t fence = 0;
  std::int64_t first_ns = 0;  ///< the first and
  std::int64_t last_ns = 0;   ///< the last moment at which it was certainly held
  /// It was granted between the two, but no more is known: the client was killed before it could
  /// report, or the lease may have expired unnoticed.
  bool vague = false;
  std::string who;
};

/// Violations of the lock's promises. The fences of two grants are not compared if their certain
/// times overlap, as neither is the earlier one.
struct Verdict {
  std::vector<std::string> overlaps;    ///< both were certainly held at the same moment
  std::vector<std::string> duplicates;  ///< two grants with the same fence
  std::vector<std::string> inversions;  ///< the later grant has the smaller fence
};

Verdict judge(std::vector<Held> history);

/// The same history without the part that dlock cannot prevent: if the machine stalled when dlock
/// should have ended a command, dlock stalled as well. The hold is cut off at the stall if it ended
/// at most a moment after it.
std::vector<Held> apart_from_stalls(std::vector<Held> history, const std::vector<Stall>& stalls);

/// The largest number of grants that were certainly held at the same moment.
std::size_t most_at_once(const std::vector<Held>& history);

/// The holds in a log of `heart`: one for each process.
std::vector<Held> held_in(std::string_view beats);

}  // namespace dlock::test
