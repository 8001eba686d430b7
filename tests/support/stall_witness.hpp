#pragma once

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/wait.hpp"

namespace dlock::test {

/// A time in which the machine did not run a thread that was ready.
struct Stall {
  Deadline from;
  Deadline to;
};

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

  /// The stalls of 50 ms and more, in order.
  std::vector<Stall> stalls() const {
    const std::lock_guard guard(mutex_);
    return stalls_;
  }

 private:
  void watch() {
    for (; !sleep_until(due_, end_.fd()); due_ = next()) note({due_, BootClock::now()});
  }
  void note(const Stall& stall) {
    constexpr milliseconds worth_noting{50};
    const std::chrono::nanoseconds late = stall.to - stall.from;
    longest_ = std::max(longest_.load(), late);
    if (late < worth_noting) return;
    const std::lock_guard guard(mutex_);
    stalls_.push_back(stall);
  }
  static Deadline next() { return later(BootClock::now(), milliseconds(10)); }

  Event end_;
  std::atomic<std::chrono::nanoseconds> longest_{};
  std::atomic<Deadline> due_{next()};
  mutable std::mutex mutex_;  ///< guards stalls_
  std::vector<Stall> stalls_;
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
