#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>

#include "base/clock.hpp"
#include "support/temp_dir.hpp"

namespace dlock::test {

/// The wall clock of the servers started with `environment()`: stands still until moved. Begins at
/// this machine's time. Their monotonic clock goes on, so they stay alive meanwhile.
class ShimClock {
 public:
  ShimClock();
  ~ShimClock();
  ShimClock(const ShimClock&) = delete;
  ShimClock& operator=(const ShimClock&) = delete;

  /// Since the epoch.
  microseconds now() const;
  void set(microseconds since_epoch);
  /// Forward, or back where negative.
  void advance(microseconds by);

  /// The variables that put a program under this clock.
  std::map<std::string, std::string> environment() const;

 private:
  std::atomic_ref<std::int64_t> shared() const { return std::atomic_ref(*shared_us_); }

  TempDir dir_;
  std::int64_t* shared_us_;
};

}  // namespace dlock::test
