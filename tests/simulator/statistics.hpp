#pragma once

#include <cstdint>
#include <string>

namespace dlock::sim {

/// Counts what happened in all schedules together, to show that the intended faults did happen.
struct Statistics {
  std::uint64_t schedules = 0;
  std::uint64_t happenings = 0;
  std::uint64_t asked = 0;  ///< for a lock
  std::uint64_t grants = 0;
  std::uint64_t grants_in_one_exchange = 0;
  std::uint64_t grants_by_like_clocks = 0;  ///< with wall clocks at most a millisecond apart
  std::uint64_t of_these_in_one_exchange = 0;
  std::uint64_t in_turn = 0;  ///< while a client waited that had surely asked later
  std::uint64_t given_up = 0;
  std::uint64_t unavailable = 0;
  std::uint64_t splits = 0;
  std::uint64_t renewals = 0;
  std::uint64_t losses = 0;
  std::uint64_t stopped_in_time = 0;
  std::uint64_t rejoined = 0;
  std::uint64_t raised = 0;
  std::uint64_t messages = 0;
  std::uint64_t dropped = 0;
  std::uint64_t duplicated = 0;
  std::uint64_t overtaken = 0;  ///< arrived after a later one, on another link
  std::uint64_t links_broken = 0;
  std::uint64_t partitions = 0;
  std::uint64_t member_crashes = 0;
  std::uint64_t memories_lost = 0;
  std::uint64_t flushes = 0;
  std::uint64_t client_crashes = 0;
  std::uint64_t freezes = 0;
  std::uint64_t suspensions = 0;
  std::uint64_t clock_steps = 0;
  std::uint64_t interrupts = 0;
};

std::string text_of(const Statistics& statistics);

}  // namespace dlock::sim
