#pragma once

#include <algorithm>
#include <optional>

#include "support/eventually.hpp"

namespace dlock::test {

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
