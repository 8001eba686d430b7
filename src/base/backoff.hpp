#pragma once

#include "base/wait.hpp"

namespace dlock {

/// Sleeps for `span`, at most until the deadline of `call_options`. Throws Error{interrupted}.
void pause(milliseconds span, const CallOptions& call_options);

/// The lengths of the pauses between tries of one request: each is twice as long as the one before,
/// `longest` at most. Every loop that repeats a request has one.
class Backoff {
 public:
  constexpr Backoff(milliseconds first, milliseconds longest) : next_(first), longest_(longest) {}

  /// The length of the next pause, which is taken then.
  milliseconds next();
  /// Whether the next pause ends before `deadline`.
  bool fits(Deadline deadline) const { return left_until(deadline) > next_; }

 private:
  milliseconds next_;
  milliseconds longest_;
};

}  // namespace dlock
