#pragma once

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/wait.hpp"

namespace dlock::test {

/// A time in which the machine did not let a thread run that had something to do.
struct Stall {
  Deadline from;
  Deadline to;
};

/// A thread that wakes up a hundred times a second, and notes how late it was: whether the machine
/// let everybody run while this lived.
class StallWitness {
 public:
  StallWitness() : thread_([this] { watch(); }) {}
  ~StallWitness() {
    end_.raise();
    thread_.join();
  }
  StallWitness(const StallWitness&) = delete;
  StallWitness& operator=(const StallWitness&) = delete;

  /// Also of a stall after which the thread has not run yet.
  std::chrono::nanoseconds longest() const {
    // In this order: what the thread notes meanwhile is then seen in the one or in the other.
    const Deadline due = due_;
    const std::chrono::nanoseconds late = BootClock::now() - due;
    return std::max(longest_.load(), late);
  }

  /// Those of 50 ms and more, in their order.
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
  std::thread thread_;  ///< last, as it uses the above
};

/// Whether `attempt()`, which needs that processes of the test run in time, comes true. It is tried
/// again only where the machine let this process wait, too.
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
