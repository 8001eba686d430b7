#pragma once

#include <optional>

#include "lock/grant.hpp"

namespace dlock {

/// An answer by which later messages of the same place are dated.
struct DatedAnswer {
  Deadline sent{};        ///< when it was asked for
  microseconds clock{0};  ///< of the place, in the answer
};

/// The content of a message by which a lock is handed over.
struct HandOver {
  microseconds at{0};  ///< by the place's clock
  milliseconds lease{0};
  Fence fence;
};

/// The grant that a message tells of. Nothing if less than `least_left` of its lease may be left,
/// because the message is old, or if the place's clock was set since the answer. One that was read
/// late has so little of its lease left that it is renewed before a command starts.
std::optional<Grant> handed_over_grant(const DatedAnswer& answer, const HandOver& told,
                                       milliseconds least_left);

}  // namespace dlock
