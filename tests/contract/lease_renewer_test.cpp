// LeaseRenewer: it renews leases, reports losses, and safe_until() promises no more than is true.

#include "base/process.hpp"
#include "base/wait.hpp"
#include "contract/engines.hpp"
#include "support/fault_proxy.hpp"
#include "support/stretched.hpp"

namespace dlock::test {
namespace {

Held take(Store& store, const std::string& key, milliseconds ttl) {
  Claim claim = claim_on(key, ttl);
  const Grant grant = granted_briefly(store, claim);
  return {claim, grant};
}

/// Waits until that time; returns whether no hold was lost.
bool unharmed_until(const LeaseRenewer& keeper, Deadline until) {
  pollfd fds[] = {{keeper.lost_fd(), POLLIN, 0}};
  return poll_until(fds, until) == 0;
}

TEST_OF_ENGINES("a keeper renews all its holds for as long as it runs, and hands them back") {
  Engine engine;
  const auto store = engine.open(), watcher = engine.open();
  const std::vector<Held> held{take(*store, "a", milliseconds(9000)),
                               take(*store, "b", milliseconds(9500)),
                               take(*store, "c", milliseconds(30'000))};
  LeaseRenewer keeper(*store, held);
  const auto safe_at_first = keeper.safe_until();
  CHECK(safe_at_first == held[0].grant.lease.valid_until);
  CHECK(unharmed_until(keeper, later(held[1].grant.lease.valid_until, milliseconds(100))));
  CHECK(keeper.safe_until() > BootClock::now());
  // On a busy machine, a renewal may just have failed; a lost hold would stay lost.
  CHECK(eventually([&] { return !keeper.loss(); }));
  const auto kept = keeper.stop();
  REQUIRE(kept.size() == held.size());
  for (std::size_t i = 0; i < kept.size(); ++i) {
    CHECK(kept[i].claim.token == held[i].claim.token);
    CHECK(kept[i].grant.fence == held[i].grant.fence);
    CHECK(kept[i].grant.lease.valid_until > BootClock::now());
    CHECK(state_of(*watcher, kept[i].claim.key.text).holders.size() == 1);
    CHECK(release(*store, kept[i].claim) == Released::yes);
  }
}

/// Whether the hold of `key` survived an outage of its engine in which a renewal failed.
template <typename Engine>
bool is_kept_through_an_outage(Engine& engine, const std::string& key) {
  const auto store = engine.open();
  const Held held = take(*store, key, milliseconds(9000));
  LeaseRenewer keeper(*store, {held});
  engine.freeze(held.claim.key);
  CHECK(eventually([&] { return keeper.loss().has_value(); }));
  const auto failing = keeper.loss();
  engine.thaw();
  REQUIRE(failing);
  CHECK(!failing->gone);
  const auto before = keeper.safe_until();
  const auto ended = [&] { return keeper.loss() && keeper.loss()->final; };
  eventually([&] { return keeper.safe_until() > before || ended(); });
  eventually([&] { return !keeper.loss() || ended(); });
  const bool kept =
      !ended() && unharmed_until(keeper, later(held.grant.lease.valid_until, milliseconds(100)));
  keeper.stop();
  return kept && release(*store, held.claim) == Released::yes;
}

TEST_OF_ENGINES("a keeper keeps its holds through an outage shorter than the lease") {
  Engine engine;
  int tries = 0;
  CHECK(in_one_of(
      3, [&] { return is_kept_through_an_outage(engine, "k" + std::to_string(tries++)); }));
}

TEST_OF_ENGINES("a keeper tells that a hold has gone, with the next renewal") {
  Engine engine;
  const auto store = engine.open(), other = engine.open();
  const Held first = take(*store, "a", milliseconds(12'000)), second = take(*store, "b", long_ttl);
  LeaseRenewer keeper(*store, {second, first});
  const auto end = keeper.safe_until();
  other->evict(LockKey{"a"}, {std::nullopt, evictor}, soon());
  CHECK(!unharmed_until(keeper, end));
  // Two renewals were due by then.
  CHECK(BootClock::now() < end - milliseconds(2000));
  const auto loss = keeper.loss();
  REQUIRE(loss);
  CHECK(loss->gone);
  CHECK(loss->key.text == "a");
  CHECK(loss->reason == "evicted by root@ops1 pid 42: stuck");
  CHECK(loss->evicted_by == evictor);
  CHECK(readable(keeper.news_fd()));
  keeper.stop();
  CHECK(state_of(*other, "a").holders.empty());
}

TEST_OF_ENGINES("a keeper that reaches nobody tells so when the lease ends, and not before") {
  Engine engine;
  bool in_time = false;
  // On a busy machine, the report may be late now and then, but not every time.
  for (int tries = 0; tries < 5 && !in_time; ++tries) {
    const auto store = engine.open();
    const Held held = take(*store, "k" + std::to_string(tries), milliseconds(600));
    LeaseRenewer keeper(*store, {held});
    engine.freeze(held.claim.key);
    const auto end = keeper.safe_until();
    CHECK(!unharmed_until(keeper, soon().deadline));
    const auto told = BootClock::now();
    const auto loss = keeper.loss();
    engine.thaw();
    CHECK(told >= end);
    REQUIRE(loss);
    // Such a short lease may expire before the engine stops.
    if (loss->gone) continue;
    in_time = told < end + stretched(milliseconds(200));
    CHECK(loss->key == held.claim.key);
    CHECK(loss->reason != "");
    CHECK(keeper.safe_until() <= BootClock::now());
  }
  CHECK(in_time);
}

TEST_OF_ENGINES("safe_until never promises more than the engine allows") {
  Engine engine;
  const auto store = engine.open(), watcher = engine.open();
  const Held held = take(*store, "k", milliseconds(9000));
  LeaseRenewer keeper(*store, {held});
  int looks = 0, too_late = 0, renewals = 0;
  for (auto last = keeper.safe_until(); renewals < 3; ++looks) {
    // Read first: a renewal in between can only move the engine's end later.
    const auto safe = keeper.safe_until();
    const auto asked = BootClock::now();
    const auto holders = state_of(*watcher, "k").holders;
    REQUIRE(holders.size() == 1);
    const auto answered = BootClock::now();
    if (safe > later(answered, *holders[0].lease_left)) ++too_late;
    if (answered - asked < milliseconds(1) && safe > later(asked, *holders[0].lease_left)) {
      ++too_late;
    }
    if (safe > last) ++renewals;
    last = safe;
    std::this_thread::sleep_for(milliseconds(1));
  }
  CHECK(too_late == 0);
  CHECK(looks > 10);
}

TEST_OF_ENGINES("a keeper in a hurry renews at once") {
  Engine engine;
  const auto store = engine.open();
  const Held held = take(*store, "k", long_ttl);
  LeaseRenewer keeper(*store, {held});
  keeper.renew_now(milliseconds(5000));
  CHECK(keeper.safe_until() > held.grant.lease.valid_until);
}

TEST_OF_ENGINES(
    "stopping a keeper breaks off a renewal that hangs, and the release works after it") {
  Engine engine;
  const auto store = engine.open(), watcher = engine.open();
  const Held held = take(*store, "k", long_ttl);
  LeaseRenewer keeper(*store, {held});
  engine.freeze(held.claim.key);
  const auto before = BootClock::now();
  keeper.renew_now(milliseconds(100));
  const auto waited = BootClock::now() - before;
  const auto kept = keeper.stop();
  const auto stopped_after = BootClock::now() - before - waited;
  engine.thaw();
  CHECK(waited >= milliseconds(100));
  CHECK(stopped_after < milliseconds(4000));  // the renewal has a deadline of 5 s
  CHECK(!keeper.loss());                      // it would be a loss at that deadline
  REQUIRE(kept.size() == 1);
  CHECK(release(*store, kept[0].claim) == Released::yes);
  CHECK(state_of(*watcher, "k").holders.empty());
}

TEST_CASE("a keeper that is stopped waits a moment for the reply to a confirmation") {
  RedisEngine engine;
  FaultProxy proxy(engine.server.address());
  const auto store = redis_store(endpoint_at(proxy.address()));
  int keys = 0;
  const auto is_confirmed = [&] {
    Held held = take(*store, "k" + std::to_string(++keys), long_ttl);
    held.grant.confirmed = false;
    const int connections = proxy.connections(), requests = proxy.requests();
    proxy.delay(Direction::replies, milliseconds(50));
    LeaseRenewer keeper(*store, {held});
    CHECK(eventually([&] { return proxy.requests() > requests; }));
    const auto kept = keeper.stop();
    proxy.heal();
    release(*store, held.claim);
    return kept[0].grant.confirmed && proxy.connections() == connections;
  };
  CHECK(in_one_of(3, is_confirmed));
}

TEST_CASE("a keeper whose connection is closed renews once for that, and at most once a second") {
  RedisEngine engine;
  FaultProxy proxy(engine.server.address());
  const auto store = redis_store(endpoint_at(proxy.address()));
  const Held held = take(*store, "k", long_ttl);
  LeaseRenewer keeper(*store, {held});
  const int requests = proxy.requests();
  const auto begun = BootClock::now();
  for (int close = 1; close <= 3; ++close) {
    const auto safe_before = keeper.safe_until();
    proxy.reset_connections();
    CHECK(eventually([&] { return keeper.safe_until() > safe_before; }));
    // The client first sets its name on each new connection.
    CHECK(proxy.requests() == requests + 2 * close);
  }
  CHECK(BootClock::now() - begun >= milliseconds(2000));
  CHECK(!keeper.loss());
  keeper.stop();
  CHECK(release(*store, held.claim) == Released::yes);
}

TEST_OF_ENGINES("a keeper that may wait has no thread before a renewal is due, and then one") {
  Engine engine;
  const auto store = engine.open();
  constexpr milliseconds ttl{12'000};
  const Held held = take(*store, "k", ttl);
  const auto begun = BootClock::now();
  const auto at_first = settled_thread_count();
  LeaseRenewer keeper(*store, {held}, nullptr, LeaseRenewer::Begin::when_due);
  CHECK(thread_count() == at_first);
  CHECK(keeper.start_by() <= later(begun, ttl / 3));
  CHECK(keeper.safe_until() == held.grant.lease.valid_until);
  CHECK(readable(keeper.news_fd()) == false);
  poll_until({}, keeper.start_by());
  keeper.start();
  auto renewed_until = held.grant.lease.valid_until;
  for (int renewals = 0; renewals < 2; ++renewals) {
    CHECK(eventually([&] { return keeper.safe_until() > renewed_until; }));
    renewed_until = keeper.safe_until();
  }
  CHECK(keeper.start_by() == never);
  keeper.stop();
  // /proc may show a joined thread a little longer.
  CHECK(eventually([&] { return thread_count() == at_first; }));

  Held unconfirmed = take(*store, "k2", long_ttl);
  unconfirmed.grant.confirmed = false;
  LeaseRenewer at_once(*store, {unconfirmed}, nullptr, LeaseRenewer::Begin::when_due);
  CHECK(at_once.start_by() == never);  // its thread runs
}

}  // namespace
}  // namespace dlock::test
