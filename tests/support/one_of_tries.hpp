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

/// The result of `attempt`, which runs dlock. While dlock exits with 69, for on a busy machine no
/// server may answer it in time, `attempt` is called again: three times in all.
template <typename Attempt>
auto once_served(Attempt attempt) {
  auto result = attempt();
  for (int tries = 1; tries < 3 && result.exit_code == 69; ++tries) result = attempt();
  return result;
}

}  // namespace dlock::test
