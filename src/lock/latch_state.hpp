#pragma once

#include <cstdint>

#include "base/clock.hpp"

namespace dlock {

/// A count-down latch: so many have to arrive, and it is open for all who wait, until its end.
struct LatchState {
  std::int64_t count = 0;
  std::int64_t arrived = 0;  ///< at most `count`: who comes later is not recorded
  milliseconds left{0};      ///< until it ends
  bool open() const { return arrived >= count; }
};

}  // namespace dlock
