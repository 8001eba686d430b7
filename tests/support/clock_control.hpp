#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>

#include "base/clock.hpp"
#include "support/temp_dir.hpp"

namespace dlock::test {

/// The wall clock of the servers started with `environment()`: begins at this machine's time, and
/// stands still until moved or, if it `runs`, goes on with the machine's. Their monotonic clock
/// goes on, so they stay alive meanwhile.
class ShimClock {
 public:
  explicit ShimClock(bool runs = false);
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
  std::atomic_ref<std::int64_t> shared() const { return std::atomic_ref(shared_[0]); }

  /// What the shim adds to the shared number.
  std::int64_t beneath() const;

  TempDir dir_;
  bool runs_;
  std::int64_t* shared_;  ///< microseconds, and whether they are added to the machine's
};

}  // namespace dlock::test
