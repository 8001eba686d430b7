#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "lock/member.hpp"

namespace dlock {

/// The wall clocks of the members, as they have told them, counted on by this host's BootClock. All
/// clients of the same members so count by one clock, whatever the wall clocks of their hosts show.
class ServerClocks {
 public:
  explicit ServerClocks(std::size_t members) : known_(members) {}

  /// Takes over what `member` has told, unless an earlier reading says it more exactly.
  void note(std::size_t member, const ClockReading& reading);

  /// What the median of the clocks that are known shows at `when`, since the epoch; of two in the
  /// middle the one that is behind. Nothing before any is known.
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
