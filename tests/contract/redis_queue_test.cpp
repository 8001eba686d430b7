// The place of a waiter to which nobody listens, on a server: it may be on its way there.

#include "contract/engines.hpp"
#include "support/eventually.hpp"
#include "support/fault_proxy.hpp"

namespace dlock::test {
namespace {

using Acquirer = LockAcquirer<RedisEngine>;

std::string owner_inside(Store& store, const std::string& key) {
  const KeyState state = state_of(store, key);
  return state.holders.empty() ? "" : state.holders[0].owner;
}

}  // namespace

TEST_CASE("a waiter that has asked once goes before one that asks later, however far it is") {
  RedisEngine engine;
  FaultProxy far(engine.server.address());
  far.delay(Direction::requests, milliseconds(150));
  far.delay(Direction::replies, milliseconds(150));
  const auto holder = engine.open(), watcher = engine.open();
  const Claim held = claim_on("k"), first = claim_on("k"), second = claim_on("k");
  granted(*holder, held);
  Acquirer far_waiter([&] { return redis_store(endpoint_at(far.address())); }, {first});
  REQUIRE(eventually([&] { return state_of(*watcher, "k").waiters.size() == 1; }));
  // Its second ask, with which it begins to listen, is on the way.
  release(*holder, held);
  Acquirer near_waiter(engine, {second});
  CHECK(eventually([&] { return owner_inside(*watcher, "k") == first.owner.text; }));
  const auto won = had(far_waiter.result());
  REQUIRE(won.size() == 1);
  CHECK(state_of(*watcher, "k").waiters.size() == 1);
  release(*far_waiter.store, won[0].claim);
  CHECK(had(near_waiter.result()).size() == 1);
}

TEST_CASE("waiters whose connections are cut while the lock is released keep their order") {
  RedisEngine engine;
  const auto holder = engine.open(), watcher = engine.open();
  const Claim held = claim_on("k");
  granted(*holder, held);
  constexpr std::size_t count = 10;
  std::vector<Claim> claims;
  std::list<Acquirer> waiters;
  for (std::size_t i = 0; i < count; ++i) {
    claims.push_back(claim_on("k"));
    waiters.emplace_back(engine, std::vector{claims.back()});
    REQUIRE(eventually([&] { return state_of(*watcher, "k").waiters.size() == i + 1; }));
  }
  REQUIRE(eventually([&] {
    return engine.server.command({"PUBSUB", "CHANNELS"}).items.size() == count;
  }));
  engine.server.command({"CLIENT", "KILL", "TYPE", "pubsub"});
  release(*holder, held);
  for (std::size_t i = 0; i < count; ++i) {
    CAPTURE(i);
    const auto won = had(waiters.front().result());
    REQUIRE(won.size() == 1);
    CHECK(won[0].claim.token == claims[i].token);
    CHECK(owner_inside(*watcher, "k") == claims[i].owner.text);
    release(*waiters.front().store, claims[i]);
    waiters.pop_front();
  }
}

TEST_CASE("a key that is free for a waiter on its way is free for all after a moment") {
  RedisEngine engine;
  const auto holder = engine.open();
  const Claim held = claim_on("k");
  granted(*holder, held);
  auto dead = engine.open();
  queue_up(*dead, claim_on("k"));
  dead.reset();
  REQUIRE(eventually([&] {
    return engine.server.command({"PUBSUB", "CHANNELS", "dlock:{k}*"}).items.empty();
  }));
  release(*holder, held);
  const Refusal refusal = refused(*holder, claim_on("k"));
  CHECK(refusal.holders == 0);
  CHECK(refusal.waiting == 1);
  CHECK(refusal.ask_again_in <= milliseconds(1000));
  CHECK(eventually([&] { return enters(*holder, claim_on("k")); }));
}

}  // namespace dlock::test
