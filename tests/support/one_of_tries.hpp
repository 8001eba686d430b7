#pragma once

namespace dlock::test {

/// Whether `attempt()` comes true in one of so many tries. A busy machine may make everybody late
/// in one of them, and not again and again.
template <typename Attempt>
bool in_one_of(int tries, Attempt attempt) {
  for (int i = 0; i < tries; ++i) {
    if (attempt()) return true;
  }
  return false;
}

}  // namespace dlock::test
