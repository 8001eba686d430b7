#pragma once

#include <algorithm>
#include <cstddef>

#include "base/clock.hpp"
#include "base/wait.hpp"

namespace dlock {

/// How long a call may block, and the fd that cancels it by becoming readable (-1: none). At the
/// deadline the call throws Error{unavailable}, cancelled it throws Error{interrupted}.
struct CallOptions {
  Deadline deadline = never;
  int cancel_fd = -1;
  const Event* sent = nullptr;  ///< raised when a request is on its way
};

/// The options of one try of so many that are left, which all come to the same: each gets its share
/// of the time, so that one which never answers leaves some for the others.
inline CallOptions share_of(const CallOptions& call_options, std::size_t tries) {
  CallOptions share = call_options;
  if (share.deadline == never) return share;
  const auto left = left_until(share.deadline) / static_cast<int>(tries);
  share.deadline = std::min(later(BootClock::now(), left), call_options.deadline);
  return share;
}

}  // namespace dlock
