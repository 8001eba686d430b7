#pragma once

#include <optional>

#include "lock/grant.hpp"

namespace dlock {

/// An answer by which later messages of the same place are dated.
struct DatedAnswer {
  Deadline sent{};        ///< when it was asked for
  microseconds clock{0};  ///< of the place, in the answer
};

/// The grant of a message that says: handed over at `granted_at` by the place's clock, with
/// `lease`. Nothing if the message may be too old to rely on, or the clock was set since the
/// answer.
std::optional<Grant> told_grant(const DatedAnswer& answer, microseconds granted_at,
                                milliseconds lease, Fence fence);

}  // namespace dlock
