// A Redis Cluster: which node serves a key, also while the key moves.

#include "support/cluster.hpp"

#include <set>
#include <thread>

#include "base/error.hpp"
#include "contract/engines.hpp"
#include "redis/cluster_router.hpp"
#include "redis/redis_store.hpp"
#include "support/fake_server.hpp"
#include "support/fault_proxy.hpp"
#include "support/scene.hpp"

namespace dlock::test {
namespace {

CallOptions for_ms(int ms) { return {later(BootClock::now(), milliseconds(ms)), -1}; }

StorePtr open_at(const Cluster& cluster, std::vector<Endpoint> seeds) {
  for (Endpoint& seed : seeds) seed.password = cluster.target().seeds.front().password;
  return std::make_unique<RedisStore>(std::make_unique<ClusterRouter>(seeds, RedisStoreOptions{}),
                                      RedisStoreOptions{});
}

Endpoint tcp_at(int port) { return endpoint_at(Address{"", port}); }

void is_served_from_any_seed(const Cluster& cluster) {
  const auto soon_enough = [] { return for_ms(30'000); };
  for (std::size_t seed = 0; seed < 3; ++seed) {
    const auto store = open_at(cluster, {tcp_at(cluster.node(seed).port())});
    for (std::size_t at = 0; at < 3; ++at) {
      const Claim claim = claim_on(Cluster::key_of(at)), other = claim_on(Cluster::key_of(at));
      CHECK(std::holds_alternative<Grant>(store->acquire(claim, {}, soon_enough())));
      CHECK(std::holds_alternative<Refusal>(cluster.open()->acquire(other, {}, soon_enough())));
      CHECK(store->renew(claim, {}, soon_enough()).grant);
      CHECK(store->release(claim, {}, soon_enough()).outcome == Released::yes);
      CHECK(store->release(claim, {}, soon_enough()).outcome == Released::not_held);
    }
  }
}

/// The first seed is silent, the second refuses.
void is_served_though_seeds_are_dead(const Cluster& cluster) {
  FaultProxy silent(cluster.node(0).address(), true);
  silent.black_hole(Direction::requests);
  const UnusedPort dead;
  const auto store = open_at(cluster, {tcp_at(silent.address().port), tcp_at(dead.number()),
                                       tcp_at(cluster.node(0).port())});
  const Claim claim = claim_on(Cluster::key_of(1));
  // The silent seed uses up its share of the time and leaves some for the others.
  CHECK(std::holds_alternative<Grant>(store->acquire(claim, {}, for_ms(12'000))));
  CHECK(release(*store, claim) == Released::yes);
  CHECK(store->name() == "redis+cluster://127.0.0.1:" + std::to_string(silent.address().port) +
                             store->name().substr(store->name().find(',')));
}

void all_masters_are_inspected(const Cluster& cluster) {
  const auto store = cluster.open();
  std::vector<Claim> claims;
  Query query{{}, {"key*"}};
  for (std::size_t at = 0; at < 3; ++at) {
    for (int i = 0; i < 5; ++i) claims.push_back(claim_on(Cluster::key_of(at, i)));
    query.keys.push_back({Cluster::key_of(2 - at)});
  }
  query.keys.push_back({"free"});
  for (const Claim& claim : claims) granted(*store, claim);
  const auto states = cluster.open()->inspect(query, soon());
  REQUIRE(states.size() == 16);
  for (std::size_t i = 0; i < 4; ++i) CHECK(states[i].key == query.keys[i]);
  CHECK(states[3].holders.empty());
  CHECK(std::is_sorted(states.begin() + 4, states.end(),
                       [](const auto& a, const auto& b) { return a.key < b.key; }));
  std::set<LockKey> all;
  for (const KeyState& state : states) {
    all.insert(state.key);
    CHECK(state.holders.size() == (state.key.text == "free" ? 0 : 1));
  }
  CHECK(all.size() == states.size());
  for (const Claim& claim : claims) {
    CHECK(store->evict(claim.key, {std::nullopt, evictor}, soon()).size() == 1);
  }
  CHECK(store->inspect({{}, {"*"}}, soon()).empty());
}

/// All four keys of the lock have moved already, so the new node can serve it by ASK.
void is_served_by_ask_while_it_moves(const Cluster& cluster) {
  const std::string key = Cluster::key_of(0);
  const int slot = Cluster::slot_of(key);
  const auto store = cluster.open(), waiting = cluster.open(), late = cluster.open();
  Claim held = claim_on(key), first = claim_on(key), second = claim_on(key);
  granted(*store, held);
  queue_up(*waiting, first);
  cluster.begin_move(slot, 0, 1);
  CHECK(state_of(*cluster.open(), key).waiters.size() == 1);
  cluster.move_key("dlock:{" + key + "}:queue", 0, 1);
  const auto seen = cluster.open()->inspect({{}, {"*"}}, soon());
  REQUIRE(seen.size() == 1);
  CHECK(seen.front().holders.size() == 1);
  CHECK(seen.front().waiters.size() == 1);
  cluster.move_keys(slot, 0, 1);
  CHECK(state_of(*cluster.open(), key).holders.size() == 1);
  CHECK(renew(*store, held));
  queue_up(*late, second);
  CHECK(state_of(*cluster.open(), key).waiters.size() == 2);
  CHECK(release(*store, held) == Released::yes);
  CHECK(let_in(*waiting, first));
  cluster.end_move(slot, 0, 1);
  CHECK(release(*waiting, first) == Released::yes);
  CHECK(let_in(*late, second));
  CHECK(release(*late, second) == Released::yes);
  cluster.move(slot, 1, 0);
}

/// While the keys are split between two nodes, neither can serve the lock; the client asks until
/// the move is over.
void is_served_once_it_has_moved(const Cluster& cluster) {
  const std::string key = Cluster::key_of(0, 1);
  const int slot = Cluster::slot_of(key);
  const auto store = cluster.open();
  const Claim held = claim_on(key);
  const Fence fence = granted(*store, held).fence;
  // On a busy machine, a node may exceed its share of the time, and the error says that instead.
  const auto is_told = [&] {
    bool renewed = false;
    const auto renews = [&] {
      store->renew(held, {}, for_ms(500));
      renewed = true;
    };
    const bool told = fails(renews, ErrorKind::unavailable, "the Cluster is moving the key");
    CHECK(!renewed);
    return told;
  };
  cluster.begin_move(slot, 0, 2);
  CHECK(eventually(is_told));
  CHECK(state_of(*cluster.open(), key).holders.size() == 1);
  cluster.move_keys(slot, 0, 2);
  CHECK(eventually(is_told));
  CHECK(state_of(*cluster.open(), key).holders.size() == 1);
  std::jthread moving([&] {
    std::this_thread::sleep_for(milliseconds(50));
    cluster.end_move(slot, 0, 2);
  });
  CHECK(renew(*store, held));
  moving.join();
  CHECK(release(*store, held) == Released::yes);
  CHECK(granted(*store, claim_on(key)).fence > fence);
  cluster.move(slot, 2, 0);
}

/// The new node sees no listeners, yet it passes over only the waiter that joined there and died.
void the_dead_are_passed_over_where_they_joined(const Cluster& cluster) {
  const std::string key = Cluster::key_of(1);
  const int slot = Cluster::slot_of(key);
  const auto store = cluster.open(), first = cluster.open();
  auto dead = cluster.open();
  const Claim held = claim_on(key), gone = claim_on(key), next = claim_on(key);
  granted(*store, held);
  cluster.move(slot, 1, 2);
  queue_up(*dead, gone);
  queue_up(*first, next);
  dead.reset();
  REQUIRE(eventually([&] {
    return cluster.node(2).command({"PUBSUB", "CHANNELS", "*"}).items.size() == 1;
  }));
  CHECK(release(*store, held) == Released::yes);
  // For a moment the dead waiter may count as reconnecting.
  CHECK(eventually([&] {
    return std::holds_alternative<Grant>(first->acquire(next, {true, {}}, soon()));
  }));
  CHECK(state_of(*cluster.open(), key).waiters.empty());
  CHECK(release(*first, next) == Released::yes);
  cluster.move(slot, 2, 1);
}

/// A connection to node 0 that falls silent, and the key of a lock there.
struct SilentWay {
  explicit SilentWay(const Cluster& cluster)
      : proxy(cluster.node(0).address(), true),
        store(open_at(cluster, {tcp_at(proxy.address().port)})) {}
  FaultProxy proxy;
  StorePtr store;
  Claim claim = claim_on(Cluster::key_of(0));
};

void a_release_that_went_unanswered_is_done(const Cluster& cluster) {
  SilentWay way(cluster);
  granted(*way.store, way.claim);
  way.proxy.black_hole(Direction::replies);
  CHECK(way.store->release(way.claim, {}, for_ms(12'000)).outcome == Released::yes);
  CHECK(state_of(*cluster.open(), way.claim.key.text).holders.empty());
}

/// The acquire is held up on one connection and done on another; it arrives after the release.
void a_request_held_up_on_the_way_grants_nothing(const Cluster& cluster) {
  SilentWay way(cluster);
  renew(*way.store, way.claim);
  way.proxy.hold(Direction::requests, Whom::open_now);
  CHECK(std::holds_alternative<Grant>(way.store->acquire(way.claim, {}, for_ms(12'000))));
  CHECK(release(*way.store, way.claim) == Released::yes);
  way.proxy.deliver_held(Direction::requests);
  const auto watcher = cluster.open();
  CHECK(refused(*watcher, way.claim).why == Refusal::Reason::gone);
  CHECK(state_of(*watcher, way.claim.key.text).holders.empty());
}

void it_waits_for_a_slot_that_nobody_has(const Cluster& cluster) {
  const std::string key = Cluster::key_of(0, 2);
  const std::string slot = std::to_string(Cluster::slot_of(key));
  const auto store = cluster.open();
  const Claim claim = claim_on(key);
  for (std::size_t i = 0; i < 3; ++i) cluster.node(i).command({"CLUSTER", "DELSLOTS", slot});
  bool in_time = false;
  // On a busy machine, a node may exceed its share of the time, and the error says that instead.
  for (int tries = 0; tries < 5 && !in_time; ++tries) {
    Deadline begun;
    REQUIRE(eventually([&] {
      begun = BootClock::now();
      const auto acquires = [&] { store->acquire(claim, {}, for_ms(300)); };
      return fails(acquires, ErrorKind::unavailable, "the Cluster is down");
    }));
    in_time = BootClock::now() - begun < stretched(milliseconds(1500));
  }
  CHECK(in_time);
  std::jthread healing([&] {
    std::this_thread::sleep_for(milliseconds(50));
    cluster.node(0).command({"CLUSTER", "ADDSLOTS", slot});
  });
  granted(*store, claim);
  healing.join();
  CHECK(release(*store, claim) == Released::yes);
}

}  // namespace

TEST_CASE("a Cluster: every key is had at the node of its slot, also while the slot moves") {
  const ClusterOptions options{.password = "of-the-cluster"};
  const Cluster cluster(options);
  is_served_from_any_seed(cluster);
  is_served_though_seeds_are_dead(cluster);
  all_masters_are_inspected(cluster);
  is_served_by_ask_while_it_moves(cluster);
  is_served_once_it_has_moved(cluster);
  the_dead_are_passed_over_where_they_joined(cluster);
  a_release_that_went_unanswered_is_done(cluster);
  a_request_held_up_on_the_way_grants_nothing(cluster);
  it_waits_for_a_slot_that_nobody_has(cluster);
}

TEST_CASE("cluster: a node that hangs up right after its answer has answered") {
  FakeServer node(
      [](const std::vector<std::string>& words) {
        if (words.front() == "EVALSHA") return say_and_close("$11\r\ngranted 1 0\r\n");
        return say(words.front() == "CLUSTER" ? "-NOPERM no\r\n" : "+OK\r\n");
      },
      true);
  const auto store = std::make_unique<RedisStore>(
      std::make_unique<ClusterRouter>(std::vector{tcp_at(node.address().port)},
                                      RedisStoreOptions{}),
      RedisStoreOptions{});
  // The end of the connection may or may not arrive together with the answer.
  for (int i = 0; i < 50; ++i) granted(*store, claim_on("k" + std::to_string(i)));
}

}  // namespace dlock::test
