#pragma once

#include <cstdio>
#include <thread>

#include "base/clock.hpp"

namespace dlock::test {

/// How long servers may take to start on a busy machine: each of three JVMs needs seconds of a
/// processor.
constexpr milliseconds time_to_come_up{120'000};

/// Whether `condition()` becomes true `within` the time. Polls every 2 ms, so that a test never
/// waits longer than it needs. For CHECK(eventually([&] { return ...; })); a failure prints to
/// stderr where and how long it waited.
template <typename Condition>
bool eventually(Condition condition, milliseconds within = milliseconds(30'000),
                const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  const Deadline deadline = BootClock::now() + within;
  while (!condition()) {
    if (BootClock::now() >= deadline) {
      std::fprintf(stderr, "%s:%d: still not so after %lld ms\n", file, line,
                   static_cast<long long>(within.count()));
      return false;
    }
    std::this_thread::sleep_for(milliseconds(2));
  }
  return true;
}

}  // namespace dlock::test
