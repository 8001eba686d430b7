#include <doctest/doctest.h>

#include "quorum/hold_state.hpp"

namespace dlock {
namespace {

const LockKey key{"k"};

std::vector<KeyState> one_holder(Limit limit) {
  Holder holder;
  holder.owner = "o";
  holder.limit = limit;
  return {KeyState{key, {holder}, {}}};
}

/// Whether a holder is shown if `servers_with_it` of five servers have it, and the others deny it.
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

TEST_CASE("merge: kept holds that one process left are as many as each server has") {
  Holder kept;
  kept.kept = true;
  kept.who.host = "h";
  kept.who.pid = 7;
  kept.limit = Limit{2};
  kept.acquired_at = WallTime(std::chrono::seconds(10));
  Holder later = kept;
  later.acquired_at = WallTime(std::chrono::seconds(20));
  const std::vector<std::vector<KeyState>> said(3, {KeyState{key, {kept, later}, {}}});
  const auto holders = merged_states({{key}, {}}, said, said.size()).front().holders;
  REQUIRE(holders.size() == 2);
  for (const Holder& holder : holders) CHECK(holder.held_on == 3);
  CHECK(holders[0].acquired_at == kept.acquired_at);
  CHECK(holders[1].acquired_at == later.acquired_at);
  const std::vector<Holder> both{kept, later}, first{kept};
  CHECK(holders_by_owner({both, both}).size() == 2);
  CHECK(holders_by_owner({first, first}).size() == 1);
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
