// The rule of each kind of lock, beyond the common one.

#include <algorithm>
#include <set>

#include "contract/engines.hpp"

namespace dlock::test {
namespace {

constexpr Limit three{3};

/// A queued waiter with its own client.
struct InLine {
  template <typename Engine>
  InLine(Engine& engine, const std::string& owner, Limit limit)
      : store(engine.open()), claim(claim_of(owner, "k", limit)) {
    queue_up(*store, claim);
  }
  bool gets_in() { return let_in(*store, claim); }
  bool leaves() const { return release(*store, claim) == Released::yes; }

  StorePtr store;
  Claim claim;
};

/// Claims on the same keys by an owner inside `owner`.
std::vector<Claim> claims_below(const std::string& owner, const std::vector<std::string>& keys) {
  std::vector<Claim> claims;
  for (const auto& key : keys) {
    claims.push_back(claim_of(owner + "/x", key));
    claims.back().token = claims.front().token;
  }
  return claims;
}

/// The names of the holding owners, sorted, as simultaneous grants have no order.
std::string inside(Store& store) {
  std::set<std::string> owners;
  for (const Holder& holder : state_of(store, "k").holders) owners.insert(holder.owner);
  std::string names;
  for (const std::string& owner : owners) names += owner + " ";
  return names;
}

bool waits(Store& store, const std::string& owner) {
  const auto waiters = state_of(store, "k").waiters;
  return std::any_of(waiters.begin(), waiters.end(),
                     [&](const auto& each) { return each.owner == owner; });
}

TEST_OF_ENGINES("a permit that is not renewed expires by itself, and the waiter gets it") {
  Engine engine;
  const auto store = engine.open();
  const Claim a = claim_of("a", "k", three), b = claim_of("b", "k", three);
  Claim dead = claim_of("dead", "k", three);
  dead.ttl = milliseconds(300);
  const Fence first = granted(*store, a).fence, second = granted(*store, b).fence;
  const Grant expiring = granted_briefly(*store, dead);
  LockAcquirer<Engine> next(engine, {claim_of("next", "k", three)}, milliseconds(60'000));
  const auto held = had(next.result());
  CHECK(next.ended() >= expiring.lease.valid_until);
  CHECK(inside(*store) == "a b next ");
  CHECK(first < second);
  CHECK(second < expiring.fence);
  CHECK(expiring.fence < held.at(0).grant.fence);
  CHECK(renew(*store, a).has_value());
  CHECK(renew(*store, b).has_value());
  CHECK(!renew(*store, dead));
  CHECK(!enters(*store, claim_of("fourth", "k", three)));
}

TEST_OF_ENGINES("the smallest limit counts while its holder is inside, and then no longer") {
  Engine engine;
  const auto store = engine.open();
  const Claim narrow = claim_of("b", "k", Limit{2});
  granted(*store, claim_of("a", "k", three));
  granted(*store, narrow);
  InLine third(engine, "c", three);
  CHECK(inside(*store) == "a b ");
  CHECK(release(*store, narrow) == Released::yes);
  CHECK(third.gets_in());
  CHECK(enters(*store, claim_of("d", "k", three)));
  CHECK(!enters(*store, claim_of("e", "k", Limit{4})));
}

TEST_OF_ENGINES("an owner that narrows its limit keeps others out until it widens it again") {
  Engine engine;
  const auto store = engine.open();
  const Claim writing = claim_of("a/x", "k");
  granted(*store, claim_of("a", "k", no_limit));
  granted(*store, writing);
  InLine reader(engine, "r", no_limit);
  CHECK(inside(*store) == "a ");
  CHECK(release(*store, writing) == Released::yes);
  CHECK(reader.gets_in());
  CHECK(inside(*store) == "a r ");
}

TEST_OF_ENGINES(
    "the floor of an inner reader does not keep the owner of a seat from entering again") {
  Engine engine;
  const auto store = engine.open(), other = engine.open();
  granted(*store, claim_of("a", "k", three));
  REQUIRE(eventually([&] { return stands_everywhere(*other, "k"); }));
  Claim reading = claim_of("a/r", "k", no_limit);
  reading.floor = long_ttl;
  granted(*store, reading);
  CHECK(release(*store, reading) == Released::yes);
  CHECK(enters(*store, claim_of("a/s", "k", three)));
  CHECK(enters(*store, claim_of("a/w", "k")));
  CHECK(!enters(*other, claim_on("k")));
}

TEST_OF_ENGINES("a writer that goes on as a reader lets in readers and no writer") {
  Engine engine;
  const auto store = engine.open();
  const Claim writing = claim_of("a", "k"), reading = claim_of("a/x", "k", no_limit);
  const Fence fence = granted(*store, writing).fence;
  CHECK(granted(*store, reading).fence == fence);
  InLine reader(engine, "r", no_limit), writer(engine, "w", exclusive);
  CHECK(release(*store, writing) == Released::yes);
  CHECK(reader.gets_in());
  CHECK(state_of(*store, "k").waiters.size() == 1);
  CHECK(reader.leaves());
  CHECK(release(*store, reading) == Released::yes);
  CHECK(writer.gets_in());
}

TEST_OF_ENGINES("readers and writers have their turns as they came, and none passes another") {
  Engine engine;
  const auto store = engine.open();
  const Claim reading = taken(*store, claim_of("r1", "k", no_limit));
  InLine w1(engine, "w1", exclusive), r2(engine, "r2", no_limit), r3(engine, "r3", no_limit),
      w2(engine, "w2", exclusive), r4(engine, "r4", no_limit);
  CHECK(!enters(*store, claim_of("late", "k", no_limit)));
  CHECK(release(*store, reading) == Released::yes);
  CHECK(w1.gets_in());
  CHECK(inside(*store) == "w1 ");
  CHECK(w1.leaves());
  CHECK(r2.gets_in());
  CHECK(r3.gets_in());
  CHECK(inside(*store) == "r2 r3 ");
  CHECK(r2.leaves());
  CHECK(r3.leaves());
  CHECK(w2.gets_in());
  CHECK(inside(*store) == "w2 ");
  CHECK(w2.leaves());
  CHECK(r4.gets_in());
}

TEST_OF_ENGINES("a waiter whose request has become an upgrade keeps nobody out") {
  Engine engine;
  const auto store = engine.open();
  const Claim held = taken(*store, claim_of("x", "k"));
  InLine first(engine, "a", no_limit), second(engine, "b", no_limit),
      upgrade(engine, "a/x", exclusive), last(engine, "c", no_limit);
  CHECK(release(*store, held) == Released::yes);
  CHECK(eventually([&] { return !waits(*store, "a/x"); }));
  CHECK(first.gets_in());
  CHECK(second.gets_in());
  const auto refusal = refused(*upgrade.store, upgrade.claim, {true, {}});
  CHECK(refusal.why == Refusal::Reason::upgrade);
  // Some engines wake a waiter when the connection of the waiter before it ends.
  upgrade.store.reset();
  CHECK(last.gets_in());
  CHECK(inside(*store) == "a b c ");
}

TEST_OF_ENGINES("of several keys those that its owner has are re-entered, past those who wait") {
  Engine engine;
  const auto store = engine.open(), asking = engine.open(), waiting = engine.open();
  const Fence outer = granted(*store, claim_of("o", "b")).fence;
  queue_up(*waiting, claim_on("b"));
  Listener listener;
  const auto held = had(acquire(*asking, claims_below("o", {"c", "b", "a"}),
                                {milliseconds(0), -1, {}, false}, listener));
  REQUIRE(held.size() == 3);
  CHECK(held[1].grant.fence == outer);
  CHECK(listener.waited_for.empty());
}

TEST_OF_ENGINES("an upgrade that is refused on one of several keys leaves the others free") {
  Engine engine;
  const auto store = engine.open(), asking = engine.open();
  granted(*store, claim_of("o", "b", no_limit));
  granted(*store, claim_of("other", "b", no_limit));
  Listener listener;
  const auto answer =
      acquire(*asking, claims_below("o", {"a", "b", "c"}), {std::nullopt, -1, {}, false}, listener);
  REQUIRE(std::holds_alternative<GaveUp>(answer));
  CHECK(std::get<GaveUp>(answer).key.text == "b");
  CHECK(std::get<GaveUp>(answer).refusal.why == Refusal::Reason::upgrade);
  for (const char* const key : {"a", "c"}) CHECK(state_of(*store, key).holders.empty());
  CHECK(state_of(*store, "b").waiters.empty());
}

}  // namespace
}  // namespace dlock::test
