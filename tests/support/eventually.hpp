#pragma once

#include <algorithm>
#include <cstdio>
#include <optional>
#include <thread>

#include "base/clock.hpp"
#include "base/error.hpp"

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

/// `condition()`; false if it throws an Error, as a server that starts or stalls makes it do.
template <typename Condition>
bool without_error(Condition condition) {
  try {
    return condition();
  } catch (const Error&) {
    return false;
  }
}

/// Whether `attempt()` returns true in one of `tries` tries. A busy machine may delay the processes
/// in one of them, but hardly in all.
template <typename Attempt>
bool in_one_of(int tries, Attempt attempt) {
  for (int i = 0; i < tries; ++i) {
    if (attempt()) return true;
  }
  return false;
}

/// The result of `attempt`, which runs dlock. It runs up to three times while dlock exits with 69,
/// as on a busy machine no server may answer in time.
template <typename Attempt>
auto once_served(Attempt attempt) {
  auto result = attempt();
  for (int tries = 1; tries < 3 && result.exit_code == 69; ++tries) result = attempt();
  return result;
}

/// Whether the rest of a lease, which `left()` returns in milliseconds, grows twice: only a renewal
/// makes it grow. `left()` returns nothing if it does not know.
template <typename Left>
bool grows_twice(Left left) {
  std::optional<long long> least;
  int times = 0;
  return eventually(
      [&] {
        const std::optional<long long> now = left();
        if (!now) return false;
        if (least && *now > *least + 500) {
          ++times;
          least = now;
        }
        least = std::min(least.value_or(*now), *now);
        return times == 2;
      },
      milliseconds(60'000));
}

}  // namespace dlock::test
