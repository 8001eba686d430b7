// Requests to stop, and what a free key remembers of its last holder.

#include <future>

#include "contract/engines.hpp"
#include "lock/release.hpp"
#include "support/silent_listener.hpp"

namespace dlock::test {
namespace {

Holder only_holder(Store& store, const std::string& key) {
  const auto holders = state_of(store, key).holders;
  REQUIRE(holders.size() == 1);
  return holders.front();
}

/// Asks the holders of the claim's key to stop.
std::vector<Holder> ask_to_stop(Store& store, const Claim& claim,
                                std::optional<Fence> fence = std::nullopt) {
  return store.evict(claim.key, {fence, evictor, true}, soon());
}

}  // namespace

TEST_OF_ENGINES("a holder that is asked to stop learns by whom and why, and keeps its hold") {
  Engine engine;
  const auto store = engine.open(), other = engine.open();
  const Claim claim = taken(*store, claim_on("k"));
  CHECK(!store->renew(claim, {}, soon()).stop_asked_by);
  const auto asked = ask_to_stop(*other, claim);
  REQUIRE(asked.size() == 1);
  CHECK(asked[0].who == claim.who);
  const auto renewed = store->renew(claim, {}, soon());
  CHECK(renewed.grant.has_value());
  CHECK(renewed.stop_asked_by == evictor);
  CHECK(!enters(*other, claim_on("k")));
  CHECK(only_holder(*other, "k").stop_asked_by == evictor);
  CHECK(release(*store, claim) == Released::yes);
  const Claim next = taken(*other, claim_on("k"));
  CHECK(!other->renew(next, {}, soon()).stop_asked_by);
}

TEST_OF_ENGINES("only the holder with the named fence is asked to stop, and nobody else hears it") {
  Engine engine;
  const auto store = engine.open(), other = engine.open();
  const Claim a = claim_of("a", "k", no_limit), b = claim_of("b", "k", no_limit);
  const Fence fence = granted(*store, a).fence;
  granted(*store, b);
  // A server without the hold cannot ask it.
  REQUIRE(eventually([&] { return state_of(*other, "k").holders.size() == 2; }));
  CHECK(ask_to_stop(*other, a, Fence{1}).empty());
  CHECK(ask_to_stop(*other, a, fence).size() == 1);
  CHECK(store->renew(a, {}, soon()).stop_asked_by == evictor);
  CHECK(!store->renew(b, {}, soon()).stop_asked_by);
  CHECK(ask_to_stop(*other, claim_on("free")).empty());
}

TEST_OF_ENGINES("the first request to stop counts, and outlives a renewal") {
  Engine engine;
  const auto store = engine.open(), other = engine.open();
  const Claim claim = taken(*store, claim_on("k"));
  ask_to_stop(*other, claim);
  store->renew(claim, {}, soon());
  Who second = evictor;
  second.label = "again";
  CHECK(other->evict(claim.key, {std::nullopt, second, true}, soon()).size() == 1);
  const auto by = store->renew(claim, {}, soon()).stop_asked_by;
  REQUIRE(by.has_value());
  CHECK(by->label == evictor.label);
}

TEST_OF_ENGINES("a keeper reports a request to stop once, and goes on renewing") {
  Engine engine;
  const auto store = engine.open(), other = engine.open();
  const Claim claim = claim_on("k", milliseconds(3000));
  const Grant grant = granted(*store, claim);
  LeaseRenewer keeper(*store, {{claim, grant}});
  ask_to_stop(*other, claim);
  std::optional<StopRequest> request;
  CHECK(eventually([&] { return (request = keeper.take_stop_request()).has_value(); }));
  REQUIRE(request.has_value());
  CHECK(request->by == evictor);
  CHECK(request->key.text == "k");
  keeper.renew_now(milliseconds(2000));
  CHECK(!keeper.take_stop_request());
  CHECK(!keeper.lost());
  keeper.stop();
  CHECK(release(*store, claim) == Released::yes);
}

TEST_OF_ENGINES("a waiter that preempts asks the present holder to stop, and gets the lock after") {
  Engine engine;
  const auto store = engine.open(), waiting = engine.open();
  const Claim held = taken(*store, claim_on("k"));
  Claim next = claim_on("k");
  next.who.label = "build 8";
  SilentListener listener;
  auto acquired = std::async(std::launch::async, [&] {
    AcquireOptions options;
    options.preempt = true;
    options.open_second = [&] { return engine.open(); };
    return acquire(*waiting, {next}, options, listener);
  });
  std::optional<Who> by;
  CHECK(
      eventually([&] { return (by = store->renew(held, {}, soon()).stop_asked_by).has_value(); }));
  REQUIRE(by.has_value());
  CHECK(by->label == "--preempt of build 8");
  CHECK(release(*store, held) == Released::yes);
  const auto holds = had(acquired.get());
  REQUIRE(holds.size() == 1);
  // Nobody asks the one that preempts.
  CHECK(!waiting->renew(holds[0].claim, {}, soon()).stop_asked_by);
  release_all(*waiting, holds, milliseconds(2000));
}

TEST_OF_ENGINES("a waiter that preempts asks once, as soon as the server answers after an outage") {
  Engine engine;
  const auto store = engine.open();
  const Claim held = taken(*store, claim_on("k", milliseconds(60'000)));
  REQUIRE(eventually([&] { return stands_everywhere(*store, "k"); }));
  engine.freeze(held.key);
  LockAcquirer<Engine> waiter(engine, {claim_on("k", milliseconds(3000))}, std::nullopt, true);
  const bool is_noticed = std::is_same_v<Engine, DeployedEngine>;
  if (is_noticed) CHECK(eventually([&] { return waiter.listener.times_lost > 0; }));
  engine.thaw();
  CHECK(eventually([&] { return store->renew(held, {}, soon()).stop_asked_by.has_value(); }));
  CHECK(release(*store, held) == Released::yes);
  CHECK(had(waiter.result()).size() == 1);
  CHECK(waiter.listener.times_asked == 1);
}

TEST_OF_ENGINES("a request to stop outlives the waiter that preempts, which then holds nothing") {
  Engine engine;
  const auto store = engine.open();
  const Claim held = taken(*store, claim_on("k"));
  {
    LockAcquirer<Engine> waiter(engine, {claim_on("k")}, std::nullopt, true);
    CHECK(eventually([&] { return store->renew(held, {}, soon()).stop_asked_by.has_value(); }));
  }
  CHECK(store->renew(held, {}, soon()).stop_asked_by.has_value());
  CHECK(release(*store, held) == Released::yes);
  CHECK(enters(*store, claim_on("k")));
}

TEST_OF_ENGINES("a free key remembers how its last holder ended, with the exit code") {
  Engine engine;
  const auto store = engine.open(), other = engine.open();
  Claim claim = claim_on("k");
  claim.who.via = Via::attach;
  granted(*store, claim);
  ReleaseOptions how;
  how.exit_code = 3;
  CHECK(store->release(claim, how, soon()).outcome == Released::yes);
  std::optional<LastGrant> last;
  // A server may learn of the release after the answer.
  CHECK(eventually([&] { return (last = state_of(*other, "k").last) && last->end; }));
  REQUIRE((last && last->end));
  CHECK(last->end->exit_code == 3);
  CHECK(!last->end->evicted_by);
  CHECK(last->who.via == Via::attach);
  CHECK(last->end->at >= last->acquired_at);
  if (!engine.lists()) return;
  const auto listed = other->inspect({{}, {"*"}, true}, soon());
  REQUIRE(listed.size() == 1);
  CHECK(listed[0].key.text == "k");
  CHECK(other->inspect({{}, {"*"}}, soon()).empty());
}

TEST_OF_ENGINES("a free key remembers an eviction: who, and why") {
  Engine engine;
  const auto store = engine.open(), other = engine.open();
  const Claim claim = taken(*store, claim_on("k"));
  CHECK(other->evict(claim.key, {std::nullopt, evictor}, soon()).size() == 1);
  std::optional<LastGrant> last;
  CHECK(eventually([&] { return (last = state_of(*other, "k").last) && last->end; }));
  REQUIRE((last && last->end));
  CHECK(last->end->evicted_by == evictor);
  CHECK(!last->end->exit_code);
  CHECK(!store->renew(claim, {}, soon()).grant);
}

TEST_OF_ENGINES("a free key says of a hold whose lease ran out that nobody released it") {
  Engine engine;
  const auto store = engine.open(), other = engine.open();
  Claim claim = claim_on("k", milliseconds(500));
  granted_briefly(*store, claim);
  std::optional<LastGrant> last;
  CHECK(eventually([&] { return (last = state_of(*other, "k").last).has_value(); }));
  REQUIRE(last.has_value());
  CHECK(!last->end);
  CHECK(last->who == claim.who);
}

TEST_OF_ENGINES("inspect tells how long a lease is, when it was renewed last, and by what") {
  Engine engine;
  const auto store = engine.open(), other = engine.open();
  for (const Via via : {Via::run, Via::attach, Via::acquire}) {
    Claim claim = claim_on("k");
    claim.who.via = via;
    granted(*store, claim);
    REQUIRE(eventually([&] { return !state_of(*other, "k").holders.empty(); }));
    const Holder holder = only_holder(*other, "k");
    CHECK(holder.who.via == via);
    CHECK(holder.ttl == long_ttl + engine.clock_unsure());
    CHECK(holder.renewed_ago <= holder.held);
    CHECK(release(*store, claim) == Released::yes);
  }
}

TEST_OF_ENGINES("a waiter learns that its predecessor was evicted, and how long that one may run") {
  Engine engine;
  const auto store = engine.open(), waiting = engine.open(), other = engine.open();
  const Claim held = taken(*store, claim_on("k"));
  REQUIRE(eventually([&] { return stands_everywhere(*other, "k"); }));
  LockAcquirer<Engine> waiter(engine, {claim_on("k")});
  REQUIRE(eventually([&] { return waiter.listener.waits(); }));
  CHECK(other->evict(held.key, {std::nullopt, evictor}, soon()).size() == 1);
  const auto holds = had(waiter.result());
  REQUIRE(holds.size() == 1);
  const auto& before = holds[0].grant.predecessor;
  REQUIRE(before.has_value());
  CHECK(before->evicted_by == evictor);
  CHECK(before->left > milliseconds(0));
  CHECK(before->left <= engine.longest(long_ttl));
  // The evicted one has ended once it has tried to release.
  CHECK(release(*store, held) == Released::not_held);
  release_all(*waiter.store, holds, milliseconds(2000));
}

}  // namespace dlock::test
