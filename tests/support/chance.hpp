#pragma once

#include <cstdint>
#include <random>

#include "base/clock.hpp"

namespace dlock::test {

/// The random seed of this test run: DLOCK_TEST_SEED, else a random one. A test prints its seed, so
/// that it can be repeated.
std::uint64_t seed_of_this_run();

/// How often a test repeats a random step: DLOCK_TEST_RUNS, else `usually`.
int runs_of_this_test(int usually);

/// Random numbers for one thread.
class Chance {
 public:
  explicit Chance(std::uint64_t seed) : engine_(seed) {}
  /// A number from 0 to `most`, both included.
  int up_to(int most) { return std::uniform_int_distribution(0, most)(engine_); }
  /// True once in `times` calls on average.
  bool once_in(int times) { return up_to(times - 1) == 0; }
  milliseconds between(milliseconds least, milliseconds most);
  void pause_up_to(microseconds most);
  std::mt19937_64& engine() { return engine_; }

 private:
  std::mt19937_64 engine_;
};

}  // namespace dlock::test
