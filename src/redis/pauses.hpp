#pragma once

#include "lock/store.hpp"

namespace dlock {

/// The pauses between tries at a server that moves or comes back: 20 to 200 ms, growing.
class Pauses {
 public:
  explicit Pauses(const Patience& patience) : patience_(patience) {}

  /// Whether the next one ends before the patience does.
  bool fit() const { return left_until(patience_.deadline) > next_; }
  /// Throws Error{interrupted}.
  void take();

 private:
  Patience patience_;
  milliseconds next_{20};
};

}  // namespace dlock
