#include "quorum/server_clocks.hpp"

#include <algorithm>

namespace dlock {

void ServerClocks::note(std::size_t member, const ClockReading& reading) {
  // Two clocks drift apart by at most one part in so many since the earlier reading.
  constexpr int drift_one_in = 1000;
  auto& known = known_[member];
  const auto unsure = reading.received - reading.sent;
  if (known && unsure > known->unsure + (reading.received - known->read) / drift_one_in) return;
  const auto middle = reading.sent.time_since_epoch() + unsure / 2;
  known = Known{reading.server - middle, unsure, reading.received};
}

std::optional<microseconds> ServerClocks::median(Deadline when) const {
  std::vector<BootClock::duration> ahead;
  for (const auto& known : known_) {
    if (known) ahead.push_back(known->ahead);
  }
  if (ahead.empty()) return std::nullopt;
  const auto middle = ahead.begin() + static_cast<std::ptrdiff_t>((ahead.size() - 1) / 2);
  std::nth_element(ahead.begin(), middle, ahead.end());
  return std::chrono::floor<microseconds>(when.time_since_epoch() + *middle);
}

}  // namespace dlock
