#pragma once

#include <algorithm>
#include <atomic>
#include <thread>

#include "base/clock.hpp"
#include "base/wait.hpp"

namespace dlock::test {

/// The sanitizers make the start of a process three to ten times slower.
constexpr int slower = DLOCK_SANITIZED ? 6 : 1;

/// An upper limit for a measured time, adapted to this machine: longer under a sanitizer, and
/// longer by the ratio of running processes to processors. A test that fails because the machine is
/// busy says nothing about dlock.
milliseconds stretched(milliseconds limit);

/// A thread that wakes a hundred times a second and records how late it was, to tell whether the
/// machine stalled while this object lived.
class StallWitness {
 public:
  StallWitness() : thread_([this] { watch(); }) {}
  ~StallWitness() {
    end_.raise();
    thread_.join();
  }
  StallWitness(const StallWitness&) = delete;
  StallWitness& operator=(const StallWitness&) = delete;

  /// Includes a stall that still lasts.
  std::chrono::nanoseconds longest() const {
    // Read in this order: a delay that the thread records meanwhile is then seen in either value.
    const Deadline due = due_;
    const std::chrono::nanoseconds late = BootClock::now() - due;
    return std::max(longest_.load(), late);
  }

 private:
  void watch() {
    for (; !sleep_until(due_, end_.fd()); due_ = next()) {
      const std::chrono::nanoseconds late = BootClock::now() - due_.load();
      longest_ = std::max(longest_.load(), late);
    }
  }
  static Deadline next() { return later(BootClock::now(), milliseconds(10)); }

  Event end_;
  std::atomic<std::chrono::nanoseconds> longest_{};
  std::atomic<Deadline> due_{next()};
  std::thread thread_;  ///< last, as it uses the members above
};

/// Whether `attempt()`, which depends on timely processes, returns true. It is repeated only if the
/// machine stalled this process, too.
template <typename Attempt>
bool unless_machine_stalls(Attempt attempt) {
  constexpr milliseconds stall{50};
  constexpr int most_tries = 3;
  for (int tries = 1;; ++tries) {
    const StallWitness witness;
    if (attempt()) return true;
    if (witness.longest() < stall || tries == most_tries) return false;
  }
}

}  // namespace dlock::test
