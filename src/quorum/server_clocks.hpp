#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "lock/member.hpp"

namespace dlock {

/// The wall clocks of the members, as reported, continued by this host's BootClock. All clients of
/// the same members thus use one clock, whatever the wall clocks of their hosts show.
class ServerClocks {
 public:
  explicit ServerClocks(std::size_t members) : known_(members) {}

  /// Records the reading from `member`, unless an earlier one is more exact.
  void note(std::size_t member, const ClockReading& reading);

  /// The median of the known clocks at `when`, since the epoch; of two in the middle, the earlier
  /// one. The result is empty while no clock is known.
  std::optional<microseconds> median(Deadline when) const;

 private:
  struct Known {
    BootClock::duration ahead{0};  ///< of the boot clock
    BootClock::duration unsure{0};
    Deadline read{};
  };
  std::vector<std::optional<Known>> known_;
};

}  // namespace dlock
