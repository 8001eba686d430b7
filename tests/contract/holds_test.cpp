// One key and its holders: grant, renew, release, re-enter.

#include <algorithm>

#include "base/error.hpp"
#include "base/wait.hpp"
#include "contract/engines.hpp"

namespace dlock::test {
namespace {

TEST_OF_ENGINES("a free key is granted at once, with a fence and the lease asked for") {
  Engine engine;
  const auto store = engine.open();
  const auto before = BootClock::now();
  const Grant grant = granted(*store, claim_on("k"));
  CHECK(grant.fence.value > 0);
  CHECK(grant.lease.length == long_ttl);
  CHECK(grant.lease.valid_until >= valid_until(before, long_ttl));
  CHECK(grant.lease.valid_until <= valid_until(BootClock::now(), long_ttl));
}

TEST_OF_ENGINES("a second owner is refused and told who holds it, since when and for how long") {
  Engine engine;
  const auto first = engine.open(), second = engine.open();
  Claim claim = claim_on("k");
  claim.who = Who{"host a", 4711, "user%", "back up",
                  "l\xc3\xa4"
                  "bel - x"};
  const auto before = wall_now();
  const Grant grant = granted(*first, claim);
  const Refusal refusal = refused(*second, claim_on("k"));
  CHECK(refusal.why == Refusal::Reason::held);
  CHECK(refusal.holders == 1);
  CHECK(refusal.ahead == 0);
  CHECK(refusal.waiting == 0);
  CHECK(refusal.ask_again_in > milliseconds(0));
  CHECK(refusal.ask_again_in <= long_ttl + engine.clock_unsure());
  REQUIRE(refusal.held_by.size() == 1);
  const Holder& holder = refusal.held_by[0];
  CHECK(holder.who == claim.who);
  CHECK(holder.owner == claim.owner.text);
  CHECK(holder.fence == grant.fence);
  CHECK(holder.limit == exclusive);
  CHECK(holder.acquired_at >= before - engine.clock_unsure() - milliseconds(2));
  CHECK(holder.acquired_at <= wall_now() + engine.clock_unsure() + milliseconds(2));
  CHECK(holder.held < std::chrono::seconds(30));
  REQUIRE(holder.lease_left);
  CHECK(*holder.lease_left > milliseconds(0));
  CHECK(*holder.lease_left <= long_ttl + engine.clock_unsure());
}

TEST_CASE_TEMPLATE("a renewal tells others the process of the command, once", Engine,
                   DeployedEngine) {
  Engine engine;
  const auto store = engine.open(), watcher = engine.open();
  Claim claim = claim_on("k");
  claim.who.label = "42";
  const Fence fence = granted(*store, claim).fence;
  const auto shown = [&] { return state_of(*watcher, "k").holders.at(0).who; };
  CHECK(shown().command_pid == 0);
  claim.who.command_pid = 4711;
  CHECK(store->renew(claim, {.granted = fence}, soon()).grant);
  CHECK(eventually([&] { return shown().command_pid == 4711; }));
  // The same again with a waiter.
  queue_up(*engine.open(), claim_on("k"));
  CHECK(store->renew(claim, {.granted = fence}, soon()).grant);
  CHECK(shown().command_pid == 4711);
  CHECK(shown() == claim.who);
  CHECK(release(*store, claim) == Released::yes);
}

TEST_CASE_TEMPLATE("a label that begins with # is not taken for the process of the command", Engine,
                   DeployedEngine) {
  Engine engine;
  const auto store = engine.open(), watcher = engine.open();
  for (const char* label : {"#123", "#", "#12 #3"}) {
    CAPTURE(label);
    Claim claim = claim_on("k");
    claim.who.label = label;
    const Fence fence = granted(*store, claim).fence;
    claim.who.command_pid = 4711;
    CHECK(store->renew(claim, {.granted = fence}, soon()).grant);
    CHECK(eventually([&] { return state_of(*watcher, "k").holders.at(0).who == claim.who; }));
    CHECK(release(*store, claim) == Released::yes);
  }
}

TEST_OF_ENGINES("the same token asked again is the same hold with the same fence") {
  Engine engine;
  const auto store = engine.open(), other = engine.open();
  const Claim claim = claim_on("k");
  const Grant once = granted(*store, claim);
  CHECK(granted(*store, claim).fence == once.fence);
  REQUIRE(eventually([&] { return stands_everywhere(*other, "k"); }));
  CHECK(granted(*other, claim, {true, {}}).fence == once.fence);
  CHECK(state_of(*other, "k").holders.at(0).holds == 1);
  CHECK(release(*other, claim) == Released::yes);
  CHECK(state_of(*other, "k").holders.empty());
}

TEST_OF_ENGINES("a release by a token that is wrong or old leaves the holder its lock") {
  Engine engine;
  const auto store = engine.open(), other = engine.open();
  const Claim old = taken(*store, claim_on("k")), claim = claim_on("k");
  CHECK(release(*store, old) == Released::yes);
  granted(*store, claim);
  CHECK(release(*other, old) == Released::not_held);
  Claim wrong = claim;
  wrong.token = new_token(claim.owner);
  CHECK(release(*other, wrong) == Released::not_held);
  CHECK(state_of(*other, "k").holders.at(0).owner == claim.owner.text);
  CHECK(renew(*store, claim).has_value());
}

TEST_OF_ENGINES("a release done twice finds nothing the second time") {
  Engine engine;
  const auto store = engine.open();
  const Claim claim = taken(*store, claim_on("k"));
  CHECK(release(*store, claim) == Released::yes);
  CHECK(release(*store, claim) == Released::not_held);
  CHECK(engine.litter() == "");
}

TEST_OF_ENGINES("the renewal of what is lost brings nothing back") {
  Engine engine;
  const auto store = engine.open(), other = engine.open();
  const Claim claim = claim_on("k");
  CHECK(!renew(*store, claim));
  granted(*store, claim);
  CHECK(store->evict(claim.key, {std::nullopt, evictor}, soon()).size() == 1);
  CHECK(!renew(*store, claim));
  CHECK(state_of(*other, "k").holders.empty());
  CHECK(enters(*other, claim_on("k")));
  CHECK(!renew(*store, claim));
}

TEST_OF_ENGINES("another store than had it upholds a hold, and makes it whole again") {
  Engine engine;
  const auto store = engine.open(), other = engine.open(), watcher = engine.open();
  const Claim claim = claim_on("k");
  const Fence fence = granted(*store, claim).fence;
  REQUIRE(eventually([&] { return stands_everywhere(*watcher, "k"); }));
  engine.lose_on_one(claim.key);
  CHECK(eventually([&] {
    const auto upheld = other->renew(claim, {.granted = fence}, soon()).grant;
    return upheld && upheld->lease.length == claim.ttl && stands_everywhere(*watcher, "k");
  }));
  CHECK(state_of(*watcher, "k").holders.at(0).fence == fence);
  CHECK(store->evict(claim.key, {std::nullopt, evictor}, soon()).size() == 1);
  CHECK(!other->renew(claim, {.granted = fence}, soon()).grant);
  CHECK(state_of(*watcher, "k").holders.empty());
}

TEST_OF_ENGINES("whoever shows the token of a hold renews it, also while others wait") {
  Engine engine;
  const auto store = engine.open(), waiting = engine.open(), other = engine.open();
  const Claim claim = claim_on("k");
  const Fence fence = granted(*store, claim).fence;
  queue_up(*waiting, claim_on("k"));
  const auto renewed = renew(*other, claim);
  REQUIRE(renewed);
  CHECK(renewed->fence == fence);
}

TEST_OF_ENGINES("a hold that has expired is gone, and its successor's fence is larger") {
  Engine engine;
  const auto store = engine.open(), other = engine.open();
  Claim claim = claim_on("k", milliseconds(500));
  Claim next = claim_on("k");
  const Grant grant = granted_briefly(*store, claim);
  CHECK(eventually([&] {
    next.token = new_token(next.owner);
    return enters(*other, next);
  }));
  CHECK(BootClock::now() > grant.lease.valid_until);
  CHECK(granted(*other, next).fence > grant.fence);
  CHECK(!renew(*store, claim));
  CHECK(release(*store, claim) == Released::not_held);
  CHECK(state_of(*other, "k").holders.at(0).owner == next.owner.text);
}

TEST_OF_ENGINES("a renewal gives the lease of the grant, or the one it asks for, until the next") {
  Engine engine;
  const auto store = engine.open();
  const Claim claim = taken(*store, claim_on("k", milliseconds(20'000)));
  const auto before = BootClock::now();
  const auto longer = store->renew(claim, {.ttl = milliseconds(90'000)}, soon()).grant;
  REQUIRE(longer);
  CHECK(longer->lease.length == milliseconds(90'000));
  CHECK(longer->lease.valid_until >= valid_until(before, milliseconds(90'000)));
  CHECK(*state_of(*store, "k").holders.at(0).lease_left > milliseconds(20'000));
  const auto again = renew(*store, claim);
  REQUIRE(again);
  CHECK(again->lease.length == claim.ttl);
  CHECK(*state_of(*store, "k").holders.at(0).lease_left <= claim.ttl + engine.clock_unsure());
}

TEST_OF_ENGINES("a lease of 31 days is granted, renewed and shown, whoever has left meanwhile") {
  Engine engine;
  if (engine.by_majority()) return;  // it grants a minute at most
  constexpr milliseconds month = std::chrono::days(31), day = std::chrono::days(1);
  const auto other = engine.open();
  const Claim claim = taken(*engine.open(), claim_on("k", month));
  const auto left = [&] { return *state_of(*other, "k").holders.at(0).lease_left; };
  CHECK(left() > month - day);
  CHECK(left() <= month + engine.clock_unsure());
  const Refusal refusal = refused(*other, claim_on("k"));
  CHECK(refusal.ask_again_in > month - day);
  CHECK(engine.open()->renew(claim_named(claim.key, claim.token), {.ttl = day}, soon()).grant);
  CHECK(left() <= day + engine.clock_unsure());
  CHECK(engine.open()->renew(claim_named(claim.key, claim.token), {.ttl = month}, soon()).grant);
  CHECK(left() > month - day);
  CHECK(release(*engine.open(), claim) == Released::yes);
  CHECK(state_of(*other, "k").holders.empty());
}

TEST_OF_ENGINES("an owner below the holder enters its hold, and shares its fence") {
  Engine engine;
  const auto store = engine.open();
  const Grant outer = granted(*store, claim_of("a", "k"));
  CHECK(granted(*store, claim_of("a", "k")).fence == outer.fence);
  CHECK(granted(*store, claim_of("a/b", "k")).fence == outer.fence);
  CHECK(granted(*store, claim_of("a/b/c", "k")).fence == outer.fence);
  for (const char* stranger : {"a-b", "ab", "b", "b/a", "A"}) {
    CAPTURE(stranger);
    CHECK(!enters(*store, claim_of(stranger, "k")));
  }
}

TEST_OF_ENGINES("who stands above the owner inside does not enter") {
  Engine engine;
  const auto store = engine.open();
  granted(*store, claim_of("a/b", "k"));
  CHECK(!enters(*store, claim_of("a", "k")));
  CHECK(!enters(*store, claim_of("a/c", "k")));
}

TEST_OF_ENGINES(
    "the end of an inner hold leaves the outer, the end of the outer leaves the inner") {
  Engine engine;
  const auto store = engine.open();
  const Claim outer = taken(*store, claim_of("a", "k")), inner = claim_of("a/b", "k");
  granted(*store, inner);
  const auto holders = state_of(*store, "k").holders;
  REQUIRE(holders.size() == 1);
  CHECK(holders[0].holds == 2);
  CHECK(release(*store, inner) == Released::yes);
  CHECK(!enters(*store, claim_on("k")));
  granted(*store, inner);
  CHECK(release(*store, outer) == Released::yes);
  CHECK(!enters(*store, claim_on("k")));
  CHECK(renew(*store, inner).has_value());
  CHECK(release(*store, inner) == Released::yes);
  CHECK(enters(*store, claim_on("k")));
}

/// Whether one more hold with `limit` fits, in the terms of the protocol.
bool fits(const std::vector<Limit>& inside, Limit limit, bool by_majority) {
  const auto count = static_cast<std::int64_t>(inside.size()) + 1;
  return limit.admits(count) && std::all_of(inside.begin(), inside.end(), [&](Limit each) {
           return each.admits(count) && !(by_majority && each.unlimited() != limit.unlimited());
         });
}

TEST_OF_ENGINES("exclusive, shared and limit N go together as their limits say, in every order") {
  Engine engine;
  const auto store = engine.open();
  constexpr int kinds = 4, requests = 4;
  for (int order = 0; order < kinds * kinds * kinds * kinds; ++order) {
    std::vector<Limit> inside;
    for (int i = 0, rest = order; i < requests; ++i, rest /= kinds) {
      const Limit limit{rest % kinds};
      CAPTURE(order);
      CAPTURE(i);
      const bool had = enters(*store, claim_of("owner" + std::to_string(i), "k", limit));
      CHECK(had == fits(inside, limit, engine.by_majority()));
      if (had) inside.push_back(limit);
    }
    CHECK(store->evict(LockKey{"k"}, {std::nullopt, evictor}, soon()).size() == inside.size());
  }
}

TEST_OF_ENGINES(
    "an upgrade beside others is refused at once and not queued, without others it is granted") {
  Engine engine;
  const auto store = engine.open();
  const Claim other = claim_of("b", "k", no_limit);
  granted(*store, claim_of("a", "k", no_limit));
  granted(*store, other);
  const Claim upgrade = claim_of("a/x", "k");
  CHECK(refused(*store, upgrade, {true, {}}).why == Refusal::Reason::upgrade);
  CHECK(state_of(*store, "k").waiters.empty());
  CHECK(release(*store, other) == Released::yes);
  CHECK(enters(*store, upgrade));
  CHECK(!enters(*store, other));
}

TEST_OF_ENGINES("an owner below more than a path names re-enters what those that it names hold") {
  Engine engine;
  const auto store = engine.open(), other = engine.open();
  std::vector<Owner> line{new_owner_below(std::nullopt)};
  while (line.size() < 18) line.push_back(new_owner_below(line.back()));
  const Owner sibling = new_owner_below(line[14]);
  int keys = 0;
  const auto inner_enters = [&](const Owner& outer, const Owner& inner) {
    const std::string key = "k" + std::to_string(++keys);
    granted(*store, claim_of(outer.text, key));
    REQUIRE(eventually([&] { return stands_everywhere(*other, key); }));
    return enters(*store, claim_of(inner.text, key));
  };
  CHECK(inner_enters(line[15], line[16]));
  CHECK(inner_enters(line[16], line[17]));
  CHECK(inner_enters(line[2], line[17]));
  CHECK_FALSE(inner_enters(line[1], line[17]));
  CHECK_FALSE(inner_enters(sibling, line[17]));
  CHECK_FALSE(inner_enters(line[16], line[15]));
}

TEST_OF_ENGINES("a floor keeps the key taken after the release, for nobody, until it has passed") {
  Engine engine;
  const auto store = engine.open();
  Claim claim = claim_of("a", "k");
  claim.floor = milliseconds(6000);
  const auto before = BootClock::now();
  granted(*store, claim);
  CHECK(release(*store, claim) == Released::yes);
  const Refusal refusal = refused(*store, claim_of("a/b", "k"));
  REQUIRE(refusal.held_by.size() == 1);
  CHECK(refusal.held_by[0].kept);
  CHECK(refusal.held_by[0].owner == "");
  CHECK(refusal.held_by[0].who == claim.who);
  CHECK(refusal.ask_again_in <= claim.floor + engine.clock_unsure());
  CHECK(!enters(*store, claim_of("a", "k")));
  CHECK(!renew(*store, claim));
  CHECK(release(*store, claim) == Released::not_held);
  CHECK(refused(*store, claim).why == Refusal::Reason::gone);
  CHECK(eventually([&] { return enters(*store, claim_on("k")); }));
  CHECK(BootClock::now() - before >= claim.floor - milliseconds(1));
}

TEST_OF_ENGINES("a floor of an inner hold keeps out others, and not what its owner does next") {
  Engine engine;
  const auto store = engine.open(), other = engine.open();
  const Claim outer = claim_of("a", "k"), next = claim_of("a/c", "k");
  Claim inner = claim_of("a/b", "k");
  inner.floor = long_ttl;
  const Fence fence = granted(*store, outer).fence;
  // A server that has not yet granted the outer hold would treat the inner one as another owner.
  REQUIRE(eventually([&] { return stands_everywhere(*other, "k"); }));
  granted(*store, inner);
  CHECK(release(*store, inner) == Released::yes);
  CHECK(granted(*store, next).fence == fence);
  CHECK(!enters(*other, claim_of("b", "k", no_limit)));
  CHECK(release(*store, next) == Released::yes);
  CHECK(release(*store, outer) == Released::yes);
  const Refusal refusal = refused(*other, claim_of("a/d", "k"));
  CHECK(refusal.why == Refusal::Reason::held);
  REQUIRE(refusal.held_by.size() == 1);
  CHECK(refusal.held_by[0].kept);
}

TEST_OF_ENGINES("a floor outlives the lease of a holder that has died") {
  Engine engine;
  const auto store = engine.open();
  Claim claim = claim_on("k", milliseconds(2000));
  claim.floor = milliseconds(9000);
  const auto before = BootClock::now();
  granted(*store, claim);
  CHECK(eventually([&] {
    const auto holders = state_of(*store, "k").holders;
    return !holders.empty() && holders[0].kept;
  }));
  CHECK(!renew(*store, claim));
  CHECK(eventually([&] { return enters(*store, claim_on("k")); }));
  CHECK(BootClock::now() - before >= claim.floor - milliseconds(1));
}

TEST_OF_ENGINES("a floor outlives the lease of a holder that has renewed it and died") {
  Engine engine;
  const auto store = engine.open();
  Claim claim = claim_on("k", milliseconds(6000));
  claim.floor = milliseconds(9000);
  const auto before = BootClock::now();
  granted(*store, claim);
  REQUIRE(renew(*store, claim));
  // A request at the very end of the lease would still find the hold, and keep it for its min-hold.
  poll_until({}, later(BootClock::now(), claim.ttl + milliseconds(100)));
  CHECK(eventually([&] { return enters(*store, claim_on("k")); }));
  CHECK(BootClock::now() - before >= claim.floor - milliseconds(1));
}

TEST_OF_ENGINES("a floor that has passed, or is not to count, frees the key with the release") {
  Engine engine;
  const auto store = engine.open();
  Claim claim = claim_on("k0");
  claim.floor = long_ttl;
  granted(*store, claim);
  CHECK(store->release(claim, {ReleaseMode::ignore_floor}, soon()).outcome == Released::yes);
  // An election in between extends every lease by its full length.
  int tries = 0;
  CHECK(in_one_of(3, [&] {
    const std::string key = "k" + std::to_string(++tries);
    claim = claim_on(key);
    claim.floor = milliseconds(50);
    granted(*store, claim);
    // The min-hold counts from the grant, which the server may have made late.
    const auto passed = engine.longest(claim.floor) + milliseconds(10);
    poll_until({}, later(BootClock::now(), passed));
    CHECK(release(*store, claim) == Released::yes);
    return enters(*store, claim_on(key));
  }));
}

TEST_OF_ENGINES("force throws out the owner with one fence, re-entrant holds too, or everybody") {
  Engine engine;
  const auto store = engine.open();
  const Claim a = claim_of("a", "k", no_limit), b = claim_of("b", "k", no_limit);
  const Claim inner = claim_of("a/x", "k", no_limit);
  const Grant grant = granted(*store, a);
  // A server that has not yet granted the outer hold would treat the inner one as another owner.
  const auto watcher = engine.open();
  REQUIRE(eventually([&] { return stands_everywhere(*watcher, "k"); }));
  granted(*store, b);
  granted(*store, inner);
  CHECK(store->evict(a.key, {Fence{1}, evictor}, soon()).empty());
  const auto out = store->evict(a.key, {grant.fence, evictor}, soon());
  REQUIRE(out.size() == 1);
  CHECK(out[0].owner == "a");
  CHECK(out[0].holds == 2);
  CHECK(!renew(*store, a));
  CHECK(!renew(*store, inner));
  CHECK(renew(*store, b).has_value());
  granted(*store, claim_of("a", "k", no_limit));
  CHECK(store->evict(a.key, {std::nullopt, evictor}, soon()).size() == 2);
  CHECK(enters(*store, claim_on("k")));
}

TEST_OF_ENGINES("force frees a kept key too, and lets in who waits") {
  Engine engine;
  const auto store = engine.open(), waiting = engine.open();
  Claim kept = claim_on("k");
  kept.floor = long_ttl;
  granted(*store, kept);
  // A server that has not yet granted the hold would admit the waiter.
  REQUIRE(eventually([&] { return stands_everywhere(*waiting, "k"); }));
  release(*store, kept);
  Claim next = claim_on("k");
  queue_up(*waiting, next);
  const auto out = store->evict(kept.key, {std::nullopt, evictor}, soon());
  REQUIRE(out.size() == 1);
  CHECK(out[0].kept);
  CHECK(let_in(*waiting, next));
}

TEST_OF_ENGINES("fences grow with every grant to another owner") {
  Engine engine;
  const auto store = engine.open();
  Fence last;
  for (int i = 0; i < 50; ++i) {
    const Claim claim = claim_on("k");
    const Fence fence = granted(*store, claim).fence;
    CHECK(fence > last);
    CHECK(fence.value < std::int64_t{1} << 53);
    last = fence;
    release(*store, claim);
  }
}

TEST_OF_ENGINES(
    "one that was evicted learns by whom and why, when it renews and when it releases") {
  Engine engine;
  const auto store = engine.open(), other = engine.open();
  const Claim claim = taken(*store, claim_on("k"));
  CHECK(other->evict(claim.key, {std::nullopt, evictor}, soon()).size() == 1);
  const auto renewed = store->renew(claim, {}, soon());
  CHECK(!renewed.grant);
  CHECK(renewed.evicted_by == evictor);
  const auto script = engine.open();
  const auto released = script->release(claim, {}, soon());
  CHECK(released.outcome == Released::not_held);
  CHECK(released.evicted_by == evictor);
  CHECK(!script->release(claim_on("k"), {}, soon()).evicted_by);
  CHECK(enters(*other, claim_on("k")));
}

}  // namespace
}  // namespace dlock::test
