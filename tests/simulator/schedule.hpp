#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "simulator/statistics.hpp"

namespace dlock::sim {

/// The outcome of one schedule.
struct Outcome {
  std::optional<std::string> violation;
  std::deque<std::string> story;  ///< its last lines, if it was asked for
};

/// Runs the schedule that `seed` decides.
Outcome run_schedule(std::uint64_t seed, bool with_story, Statistics& statistics);

}  // namespace dlock::sim
