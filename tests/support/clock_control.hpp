#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>

#include "base/clock.hpp"
#include "support/temp_dir.hpp"

namespace dlock::test {

/// The wall clock of the servers that are started with `environment()`. It begins at this machine's
/// time. It stands still until moved or, if it `runs`, goes on with the machine's clock. The
/// servers' monotonic clock always goes on, so they stay alive.
class ShimClock {
 public:
  explicit ShimClock(bool runs = false);
  ~ShimClock();
  ShimClock(const ShimClock&) = delete;
  ShimClock& operator=(const ShimClock&) = delete;

  /// The time since the epoch.
  microseconds now() const;
  void set(microseconds since_epoch);
  /// Moves the clock forward, or back if `by` is negative.
  void advance(microseconds by);

  /// The variables that make a program use this clock.
  std::map<std::string, std::string> environment() const;

 private:
  std::atomic_ref<std::int64_t> shared() const { return std::atomic_ref(shared_[0]); }

  /// The machine's time if the clock runs, else 0; the shim adds it to the shared number.
  std::int64_t beneath() const;

  TempDir dir_;
  bool runs_;
  std::int64_t* shared_;  ///< microseconds, and whether the machine's clock is added
};

}  // namespace dlock::test
