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

Waiter waiter(const std::string& owner, Ticket ticket, milliseconds waiting) {
  Waiter waiter;
  waiter.owner = owner;
  waiter.ticket = ticket;
  waiter.waiting = waiting;
  return waiter;
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

TEST_CASE("merge: waiters stand in the order of their tickets, whoever was asked late") {
  const Waiter first = waiter("first", Ticket{1000}, milliseconds(3));
  const Waiter second_seen_late = waiter("second", Ticket{2000}, milliseconds(9));
  const std::vector<std::vector<KeyState>> said = {
      {KeyState{key, {}, {second_seen_late}}},
      {KeyState{key, {}, {first, waiter("second", Ticket{2000}, milliseconds(2))}}}};
  const auto waiters = merged_states({{key}, {}}, said, 3).front().waiters;
  REQUIRE(waiters.size() == 2);
  CHECK(waiters[0].owner == "first");
  CHECK(waiters[0].position == 1);
  CHECK(waiters[1].waiting == milliseconds(9));
}

}  // namespace dlock
