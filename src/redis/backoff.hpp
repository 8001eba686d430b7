#pragma once

#include "lock/store.hpp"

namespace dlock {

/// The pauses between tries at a server that moves or comes back: 20 to 200 ms, growing.
class Backoff {
 public:
  explicit Backoff(const CallOptions& call_options) : patience_(call_options) {}

  /// Whether the next one ends before the patience does.
  bool fit() const { return left_until(patience_.deadline) > next_; }
  /// Throws Error{interrupted}.
  void take();

 private:
  CallOptions patience_;
  milliseconds next_{20};
};

}  // namespace dlock
