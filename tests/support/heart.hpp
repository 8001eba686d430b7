#pragma once

#include <cstdint>

namespace dlock::test {

/// What `heart` (tests/shim) appends to its log for every beat.
struct Beat {
  std::int64_t fence;
  std::int64_t pid;
  std::int64_t before_ns;  ///< CLOCK_BOOTTIME before it wrote to the resource
  std::int64_t after_ns;   ///< and after
  std::int64_t accepted;   ///< whether the resource took the write
};

/// The resource the hearts write to, in a file: the largest fence that has written, and in the
/// lowest bits the writes counted. Fence check and write are one atomic step.
constexpr int bits_of_the_count = 10;

}  // namespace dlock::test
