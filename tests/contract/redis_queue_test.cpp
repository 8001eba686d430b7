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

}  // namespace dlock::test
