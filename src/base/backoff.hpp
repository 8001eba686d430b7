#pragma once

#include "base/wait.hpp"

namespace dlock {

/// Sleeps for `span`, at most until the deadline of `call_options`. Throws Error{interrupted}.
void pause(milliseconds span, const CallOptions& call_options);

/// The lengths of the pauses between tries of one request: each is twice as long as the one before,
/// up to `longest`. Every loop that repeats a request has its own.
class Backoff {
 public:
  constexpr Backoff(milliseconds first, milliseconds longest) : next_(first), longest_(longest) {}

  /// Returns the length of the next pause and doubles the one after it.
  milliseconds next();
  /// Whether the next pause ends before `deadline`.
  bool fits(Deadline deadline) const { return left_until(deadline) > next_; }

 private:
  milliseconds next_;
  milliseconds longest_;
};

}  // namespace dlock
