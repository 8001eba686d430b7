#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "support/heart.hpp"
#include "support/stall_witness.hpp"

namespace dlock::test {

/// One grant of an exclusive lock, as far as anything is known of it. All moments are of BootClock.
struct Held {
  std::int64_t fence = 0;
  std::int64_t first_ns = 0;  ///< the first and
  std::int64_t last_ns = 0;   ///< the last moment at which it was held for certain
  /// It was granted between the two, and more is not known: the client was killed before it could
  /// say so, or the lease may have ended before anybody looked.
  bool vague = false;
  std::string who;
};

/// What must not be. Of two grants whose certain moments are not apart neither is the earlier one,
/// so their fences are not compared.
struct Verdict {
  std::vector<std::string> overlaps;    ///< both were held for certain at the same moment
  std::vector<std::string> duplicates;  ///< two grants of one fence
  std::vector<std::string> inversions;  ///< the later grant has the smaller fence
};

Verdict judge(std::vector<Held> history);

/// The same, as far as the holds are dlock's to answer for: where the machine stood still when a
/// command was to be ended, dlock did not come to it either, so what the command did from then on
/// is cut off, if that was for a moment after the stall at most.
std::vector<Held> apart_from_stalls(std::vector<Held> history, const std::vector<Stall>& stalls);

/// How many were held for certain at the same moment at most.
std::size_t most_at_once(const std::vector<Held>& history);

/// The commands that have written to a log of `heart`: one for each process.
std::vector<Held> held_in(std::string_view beats);

}  // namespace dlock::test
