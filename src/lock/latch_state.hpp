#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/clock.hpp"

namespace dlock {

/// A count-down latch: so many have to arrive, and it is open for all who wait, until its end.
struct LatchState {
  std::int64_t count = 0;
  std::int64_t arrived = 0;  ///< at most `count`: who comes later is not recorded
  milliseconds left{0};      ///< until it ends
  /// Where several servers decide: which of all latches that have had this name.
  std::string generation{};
  bool open() const { return arrived >= count; }
};

}  // namespace dlock
