#pragma once

#include <cstdint>
#include <random>

#include "base/clock.hpp"

namespace dlock::test {

/// Where the chances of this run of the tests begin: DLOCK_TEST_SEED, else anything. A test says
/// its seed, so that it can be run again as it was.
std::uint64_t seed_of_this_run();

/// How often a test repeats what it does at random: DLOCK_TEST_RUNS, else `usually`.
int runs_of_this_test(int usually);

/// How long a test goes on that could go on for ever: DLOCK_TEST_SECONDS, else `usually`.
std::chrono::seconds length_of_this_run(std::chrono::seconds usually);

/// Chances of one thread.
class Chance {
 public:
  explicit Chance(std::uint64_t seed) : engine_(seed) {}
  /// 0 to `most`, both included.
  int up_to(int most) { return std::uniform_int_distribution(0, most)(engine_); }
  /// Once in so many times.
  bool once_in(int times) { return up_to(times - 1) == 0; }
  milliseconds between(milliseconds least, milliseconds most);
  void pause_up_to(microseconds most);
  std::mt19937_64& engine() { return engine_; }

 private:
  std::mt19937_64 engine_;
};

}  // namespace dlock::test
