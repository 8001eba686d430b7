#include <doctest/doctest.h>

#include "quorum/merge.hpp"

namespace dlock {
namespace {

const LockKey key{"k"};

std::vector<KeyState> one_holder(Limit limit) {
  Holder holder;
  holder.owner = "o";
  holder.limit = limit;
  return {KeyState{key, {holder}, {}}};
}

/// Whether a holder counts as one whom so many of five servers have, the others having said that
/// they have not.
bool is_shown(Limit limit, std::size_t servers_with_it) {
  std::vector<std::vector<KeyState>> said(5, {KeyState{key, {}, {}}});
  for (std::size_t i = 0; i < servers_with_it; ++i) said[i] = one_holder(limit);
  return !merged_states({{key}, {}}, said, said.size()).front().holders.empty();
}

}  // namespace

TEST_CASE("merge: who has fewer votes than its limit takes is no holder") {
  CHECK(is_shown(exclusive, 3));
  CHECK_FALSE(is_shown(exclusive, 2));
  CHECK(is_shown(no_limit, 3));
  CHECK(is_shown(Limit{2}, 4));
  CHECK_FALSE(is_shown(Limit{2}, 3));
  CHECK_FALSE(is_shown(Limit{4}, 4));
}

}  // namespace dlock
