#pragma once

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

}  // namespace dlock
