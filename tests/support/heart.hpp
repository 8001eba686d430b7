#pragma once

#include <cstdint>

namespace dlock::test {

/// The record that `heart` (tests/shim) appends to its log for every beat.
struct Beat {
  std::int64_t fence;
  std::int64_t pid;
  std::int64_t before_ns;  ///< CLOCK_BOOTTIME before the write to the resource
  std::int64_t after_ns;   ///< and after it
  std::int64_t accepted;   ///< whether the resource accepted the write
};

/// The resource that the hearts write to is a file with one number: the largest fence that has
/// written, and in the lowest bits the count of writes. Fence check and write are one atomic step.
constexpr int bits_of_the_count = 10;

}  // namespace dlock::test
