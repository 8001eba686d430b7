#pragma once

namespace dlock::test {

/// Whether `attempt()` returns true in one of `tries` tries. A busy machine may delay the processes
/// in one of them, but hardly in all.
template <typename Attempt>
bool in_one_of(int tries, Attempt attempt) {
  for (int i = 0; i < tries; ++i) {
    if (attempt()) return true;
  }
  return false;
}

/// The result of `attempt`, which runs dlock. It runs up to three times while dlock exits with 69,
/// as on a busy machine no server may answer in time.
template <typename Attempt>
auto once_served(Attempt attempt) {
  auto result = attempt();
  for (int tries = 1; tries < 3 && result.exit_code == 69; ++tries) result = attempt();
  return result;
}

}  // namespace dlock::test
