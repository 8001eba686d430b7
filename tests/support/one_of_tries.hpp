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

/// What `attempt`, a command, ends with. Where a busy machine let it find no server in time, it is
/// tried again: three times in all.
template <typename Attempt>
auto once_served(Attempt attempt) {
  auto result = attempt();
  for (int tries = 1; tries < 3 && result.exit_code == 69; ++tries) result = attempt();
  return result;
}

}  // namespace dlock::test
