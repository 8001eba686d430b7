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

/// The same for a part of the call, which takes no longer than `span`. Without `sent`: most parts
/// find or log in to a server, and what they send to it is not yet the request.
inline CallOptions at_most(milliseconds span, const CallOptions& call_options) {
  return {std::min(call_options.deadline, later(BootClock::now(), span)), call_options.cancel_fd};
}

/// The options of one try of so many that are left, which all come to the same: each gets its share
/// of the time, so that one which never answers leaves some for the others.
inline CallOptions share_of(const CallOptions& call_options, std::size_t tries) {
  if (call_options.deadline == never) return {never, call_options.cancel_fd};
  return at_most(left_until(call_options.deadline) / static_cast<int>(tries), call_options);
}

}  // namespace dlock
