// The position of a waiter that does not listen: it may be about to reconnect.

#include <algorithm>

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

/// Waits until there is a holder; returns its owner.
std::string first_inside(Store& store, const std::string& key) {
  std::string owner;
  REQUIRE(eventually([&] {
    owner = owner_inside(store, key);
    return !owner.empty();
  }));
  return owner;
}

}  // namespace

TEST_CASE("a waiter that has asked once goes before one that asks later, however far it is") {
  RedisEngine engine;
  FaultProxy far(engine.server.address());
  far.delay(Direction::requests, milliseconds(150));
  far.delay(Direction::replies, milliseconds(150));
  const auto holder = engine.open(), watcher = engine.open();
  bool in_order = false;
  // On a busy machine, the waiter may miss its moment.
  for (int attempt = 0; attempt < 5 && !in_order; ++attempt) {
    const std::string key = "k" + std::to_string(attempt);
    const Claim held = claim_on(key), first = claim_on(key), second = claim_on(key);
    granted(*holder, held);
    Acquirer far_waiter([&] { return redis_store(endpoint_at(far.address())); }, {first});
    REQUIRE(eventually([&] { return state_of(*watcher, key).waiters.size() == 1; }));
    // The second request of the first waiter, with which it begins to listen, is in flight.
    const auto released = BootClock::now();
    release(*holder, held);
    Acquirer near_waiter(engine, {second});
    in_order = first_inside(*watcher, key) == first.owner.text;
    CHECK((in_order || BootClock::now() - released > milliseconds(900)));
    if (!in_order) continue;
    const auto won = had(far_waiter.result());
    REQUIRE(won.size() == 1);
    CHECK(eventually([&] { return state_of(*watcher, key).waiters.size() == 1; }));
    release(*far_waiter.store, won[0].claim);
    CHECK(had(near_waiter.result()).size() == 1);
  }
  CHECK(in_order);
}

TEST_CASE("waiters whose connections are cut while the lock is released keep their order") {
  RedisEngine engine;
  const auto holder = engine.open(), watcher = engine.open();
  constexpr std::size_t count = 10;
  std::size_t in_order = 0;
  // On a busy machine, a waiter may reconnect after its moment.
  for (int attempt = 0; attempt < 5 && in_order < count; ++attempt) {
    const std::string key = "k" + std::to_string(attempt);
    const Claim held = claim_on(key);
    granted(*holder, held);
    std::vector<Claim> claims;
    std::list<Acquirer> waiters;
    for (std::size_t i = 0; i < count; ++i) {
      claims.push_back(claim_on(key));
      waiters.emplace_back(engine, std::vector{claims.back()});
      REQUIRE(eventually([&] { return state_of(*watcher, key).waiters.size() == i + 1; }));
    }
    REQUIRE(eventually([&] {
      return std::all_of(waiters.begin(), waiters.end(),
                         [](const Acquirer& each) { return each.listener.listens(); });
    }));
    engine.server.command({"CLIENT", "KILL", "TYPE", "pubsub"});
    release(*holder, held);
    for (in_order = 0; in_order < count; ++in_order) {
      const Claim& next = claims[in_order];
      CAPTURE(in_order);
      if (first_inside(*watcher, key) != next.owner.text) break;
      const auto won = had(waiters.front().result());
      REQUIRE(won.size() == 1);
      CHECK(won[0].claim.token == next.token);
      release(*waiters.front().store, next);
      waiters.pop_front();
    }
  }
  CHECK(in_order == count);
}

TEST_CASE("a key that is free for a waiter on its way is free for all after a moment") {
  RedisEngine engine;
  const auto holder = engine.open();
  std::string key;
  Answer answer;
  Deadline released;
  int attempt = 0;
  // On a slow machine, the moment is over already.
  do {
    key = "k" + std::to_string(attempt++);
    const Claim held = claim_on(key);
    granted(*holder, held);
    auto dead = engine.open();
    queue_up(*dead, claim_on(key));
    dead.reset();
    REQUIRE(eventually([&] {
      return engine.server.command({"PUBSUB", "CHANNELS"}).items.empty();
    }));
    released = BootClock::now();
    release(*holder, held);
    answer = holder->acquire(claim_on(key), {}, soon());
  } while (attempt < 10 && BootClock::now() - released > milliseconds(900));
  REQUIRE(std::holds_alternative<Refusal>(answer));
  const auto& refusal = std::get<Refusal>(answer);
  CHECK(refusal.holders == 0);
  CHECK(refusal.waiting == 1);
  CHECK(refusal.ask_again_in <= milliseconds(1000));
  CHECK(eventually([&] { return enters(*holder, claim_on(key)); }));
}

TEST_CASE("a dead waiter for whom there is no room keeps out those with room for a moment only") {
  RedisEngine engine;
  const auto store = engine.open();
  granted(*store, claim_of("a", "k", no_limit));
  auto dead = engine.open();
  queue_up(*dead, claim_of("dead", "k"));
  dead.reset();
  REQUIRE(eventually([&] { return engine.server.command({"PUBSUB", "CHANNELS"}).items.empty(); }));
  CHECK(eventually([&] { return enters(*store, claim_of("b", "k", no_limit)); }));
}

TEST_CASE("a living waiter for whom there is no room keeps out those with room") {
  RedisEngine engine;
  const auto store = engine.open(), living = engine.open();
  const Claim held = claim_of("a", "k", no_limit);
  granted(*store, held);
  Claim waiting = claim_of("living", "k");
  queue_up(*living, waiting);
  CHECK(!enters(*store, claim_of("b", "k", no_limit)));
  // The waiter is told when the hold expires.
  CHECK(news(*living, waiting, Wake::Reason::changed).has_value());
  CHECK(!enters(*store, claim_of("c", "k", no_limit)));
  release(*store, held);
  CHECK(let_in(*living, waiting));
}

}  // namespace dlock::test
