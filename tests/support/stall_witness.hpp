#pragma once

#include <algorithm>
#include <atomic>
#include <thread>

#include "base/clock.hpp"
#include "base/wait.hpp"

namespace dlock::test {

/// A thread that wakes up a hundred times a second, and notes how late it was at most: whether the
/// machine let everybody run while this lived.
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
    return std::max<std::chrono::nanoseconds>(longest_, BootClock::now() - due_.load());
  }

 private:
  void watch() {
    for (; !sleep_until(due_, end_.fd()); due_ = next()) {
      longest_ = std::max<std::chrono::nanoseconds>(longest_, BootClock::now() - due_.load());
    }
  }
  static Deadline next() { return later(BootClock::now(), milliseconds(10)); }

  Event end_;
  std::atomic<std::chrono::nanoseconds> longest_{};
  std::atomic<Deadline> due_{next()};
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
