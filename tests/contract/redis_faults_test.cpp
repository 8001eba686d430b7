// Redis only: the effects of network faults on requests, replies and waiters.

#include <algorithm>
#include <future>

#include "base/error.hpp"
#include "contract/engines.hpp"
#include "lock/release.hpp"
#include "redis/entry_format.hpp"
#include "support/fault_proxy.hpp"
#include "support/resp.hpp"

namespace dlock::test {
namespace {

/// A server, a proxy in front of it, and clients of both.
struct Net {
  RedisEngine engine;
  FaultProxy proxy{engine.server.address()};

  StorePtr direct() { return engine.open(); }
  StorePtr through() { return redis_store(endpoint_at(proxy.address())); }
  std::function<StorePtr()> opener() {
    return [this] { return through(); };
  }
  /// A client with an open connection, after the server has loaded the script.
  StorePtr through_ready() {
    auto store = through();
    renew(*store, claim_on("nobody holds this"));
    return store;
  }
};

/// Each request of a proxy's clients: its first word, and the operation if it runs the script.
std::vector<std::string> requests_in(const std::string& recorded) {
  std::vector<std::string> found;
  std::string_view rest = recorded;
  while (const auto size = message_size(rest)) {
    const auto words = request_words(rest.substr(0, *size));
    const bool script = words[0].starts_with("EVAL");
    found.push_back(script ? words[0] + " " + words.at(7) : words[0]);
    rest.remove_prefix(*size);
  }
  return found;
}

using Words = std::vector<std::string>;

TEST_CASE("a lease is counted from its request, however late the answer comes") {
  constexpr milliseconds late{400};
  Net net;
  const auto store = net.through_ready();
  const Claim claim = claim_on("k", milliseconds(5000));
  net.proxy.delay(Direction::replies, late);
  const auto is_of_its_request = [&](const Grant& grant) {
    return grant.lease.valid_until <= later(BootClock::now(), claim.ttl - late);
  };
  CHECK(is_of_its_request(granted(*store, claim)));
  CHECK(is_of_its_request(renew(*store, claim).value()));
  net.proxy.heal();
}

TEST_CASE("login, database, name and the first acquire go out in one write, before any reply") {
  RedisServer server({.password = "secret"});
  FaultProxy proxy(server.address());
  Endpoint endpoint = endpoint_at(server.address());
  endpoint.password = "secret";
  endpoint.database = 3;
  const auto warm = redis_store(endpoint);
  renew(*warm, claim_on("k"));  // loads the script into the server
  for (const bool wait : {false, true}) {
    CAPTURE(wait);
    const int before = proxy.requests();
    endpoint.socket_path = proxy.address().path;
    proxy.hold(Direction::replies);
    const auto store = redis_store(endpoint);
    std::thread asking([&] { store->acquire(claim_on(wait ? "w" : "k"), {wait, {}}, soon()); });
    const int expected = wait ? 6 : 4;
    CHECK(eventually([&] { return proxy.requests() - before >= expected; }));
    proxy.deliver_held(Direction::replies);
    asking.join();
    const auto sent = requests_in(proxy.recorded().back());
    const auto shape =
        wait ? Words{"AUTH", "SELECT", "CLIENT", "MULTI", "SUBSCRIBE", "EVALSHA acquire", "EXEC"}
             : Words{"AUTH", "SELECT", "CLIENT", "EVALSHA acquire"};
    CHECK(sent == shape);
  }
  CHECK(proxy.connections() == 2);
}

TEST_CASE("a server that does not know the script is sent its text, once") {
  Net net;
  const auto store = net.through();
  const Claim claim = taken(*store, claim_on("k"));
  CHECK(requests_in(net.proxy.recorded()[0]) == Words{"CLIENT", "EVALSHA acquire", "EVAL acquire"});
  renew(*store, claim);
  net.engine.server.command({"SCRIPT", "FLUSH"});
  const auto waiting = net.through();
  Claim next = claim_on("k");
  queue_up(*waiting, next);
  CHECK(requests_in(net.proxy.recorded()[1]) ==
        Words{"CLIENT", "MULTI", "SUBSCRIBE", "EVALSHA acquire", "EXEC", "UNSUBSCRIBE", "MULTI",
              "SUBSCRIBE", "EVAL acquire", "EXEC"});
  net.engine.server.command({"SCRIPT", "FLUSH"});
  CHECK(release(*store, claim) == Released::yes);
  CHECK(let_in(*waiting, next));
}

TEST_CASE("an acquire repeated after its reply was lost is one hold") {
  Net net;
  const auto store = net.through_ready(), watcher = net.direct();
  const Claim claim = claim_on("k");
  net.proxy.drop_replies(1);
  CHECK_THROWS_AS(store->acquire(claim, {}, briefly()), Error);
  std::vector<Holder> holders;
  // On a busy machine, the server may not have processed it yet.
  REQUIRE(eventually([&] {
    holders = state_of(*watcher, "k").holders;
    return holders.size() == 1;
  }));
  CHECK(granted(*store, claim).fence == holders[0].fence);
  CHECK(state_of(*watcher, "k").holders.at(0).holds == 1);
  CHECK(release(*store, claim) == Released::yes);
  CHECK(state_of(*watcher, "k").holders.empty());
  // A copy of the lost request might still be in flight: it would find a tombstone.
  CHECK(refused(*watcher, claim).why == Refusal::Reason::gone);
}

TEST_CASE("a renewal and a release repeated after their replies were lost do what was asked") {
  Net net;
  const auto store = net.through_ready(), watcher = net.direct();
  const Claim claim = taken(*store, claim_on("k", milliseconds(20'000)));
  net.proxy.drop_replies(1);
  CHECK_THROWS_AS(store->renew(claim, {.ttl = long_ttl}, briefly()), Error);
  // On a busy machine, the server may not have processed it yet.
  CHECK(eventually([&] { return state_of(*watcher, "k").holders.at(0).lease_left > claim.ttl; }));
  CHECK(renew(*store, claim)->lease.length == claim.ttl);
  net.proxy.drop_replies(1);
  CHECK_THROWS_AS(store->release(claim, {}, briefly()), Error);
  CHECK(eventually([&] { return state_of(*watcher, "k").holders.empty(); }, milliseconds(5000)));
  CHECK(release(*store, claim) == Released::not_held);
  CHECK(litter_of(net.engine.server) == "");
}

TEST_CASE("an eviction repeated after its reply was lost evicts nobody who came in between") {
  Net net;
  const auto store = net.through_ready(), holder = net.direct(), waiter = net.direct();
  const Claim held = claim_on("k");
  Claim next = claim_on("k");
  const Fence of_held = granted(*holder, held).fence;
  queue_up(*waiter, next);
  std::optional<Fence> fence;
  SUBCASE("of everybody") {}
  SUBCASE("of one fence") { fence = of_held; }
  // The reply to its own look at the holders is delivered.
  net.proxy.hold(Direction::replies);
  auto evicted = std::async(std::launch::async, [&] {
    return store->evict(held.key, {fence, evictor}, soon());
  });
  const auto is_held = [&] {
    const auto holders = state_of(*net.direct(), "k").holders;
    return holders.size() == 1 && holders[0].owner == held.owner.text;
  };
  let_through_until(net.proxy, [&] { return !is_held(); });
  CHECK(let_in(*waiter, next));
  net.proxy.drop_held(Direction::replies);
  net.proxy.close_connections();
  const auto told = evicted.get();
  REQUIRE(told.size() == 1);
  CHECK(told[0].owner == held.owner.text);
  CHECK(renew(*waiter, next));
  CHECK(release(*waiter, next) == Released::yes);
}

TEST_CASE("an eviction of many takes a look and one request, and names them all") {
  constexpr std::size_t many = 60;
  Net net;
  const auto store = net.through_ready(), holder = net.direct();
  for (std::size_t i = 0; i < many; ++i) {
    granted(*holder, claim_of("reader" + std::to_string(i), "k", no_limit));
  }
  const int before = net.proxy.requests();
  net.proxy.hold(Direction::replies);
  bool lost = false;
  SUBCASE("where the answer comes") {}
  SUBCASE("where the answer is lost, and comes to a second request") { lost = true; }
  auto evicted = std::async(std::launch::async, [&] {
    return store->evict({"k"}, {std::nullopt, evictor}, soon());
  });
  let_through_until(net.proxy, [&] { return state_of(*net.direct(), "k").holders.empty(); });
  constexpr int look_and_eviction = 3;
  CHECK(net.proxy.requests() - before == look_and_eviction);
  if (lost) {
    net.proxy.drop_held(Direction::replies);
    net.proxy.close_connections();
  } else {
    net.proxy.deliver_held(Direction::replies);
  }
  CHECK(evicted.get().size() == many);
}

TEST_CASE("an eviction finds the next holder where the first has released meanwhile") {
  Net net;
  const auto store = net.through_ready(), holder = net.direct();
  const Claim held = taken(*holder, claim_on("k")), next = claim_on("k");
  net.proxy.hold(Direction::replies);
  auto evicted = std::async(std::launch::async, [&] {
    return store->evict(held.key, {std::nullopt, evictor}, soon());
  });
  const bool has_looked = eventually([&] { return net.proxy.held(Direction::replies) == 2; });
  CHECK(has_looked);
  CHECK(release(*holder, held) == Released::yes);
  granted(*holder, next);
  net.proxy.deliver_held(Direction::replies);
  const auto told = evicted.get();
  REQUIRE(told.size() == 1);
  CHECK(told[0].owner == next.owner.text);
  CHECK(!renew(*holder, next));
}

TEST_CASE("an eviction needs nothing of the queue and the latch beside the holders") {
  RedisEngine engine;
  const auto store = engine.open();
  granted(*store, claim_on("k"));
  engine.server.command({"ZADD", "dlock:{k}:queue", "1", "w"});
  engine.server.command({"HSET", "dlock:{k}:waiters", "w", "damaged"});
  engine.server.command({"SET", "dlock:{k}:latch", "foreign"});
  CHECK(store->evict({"k"}, {std::nullopt, evictor}, soon()).size() == 1);
  CHECK(engine.server.command({"EXISTS", "dlock:{k}:queue"}).number == 0);
}

TEST_CASE("a holder that was evicted hears of it, also where its first release was lost") {
  Net net;
  const auto store = net.through_ready(), other = net.direct();
  const Claim claim = taken(*store, claim_on("k"));
  CHECK(other->evict(claim.key, {std::nullopt, evictor}, soon()).size() == 1);
  ReleaseResult result;
  SUBCASE("on a connection that says nothing any more") {
    net.proxy.black_hole(Direction::requests, Whom::open_now);
    const auto until = later(BootClock::now(), milliseconds(10'000));
    const auto end = release_until_answered(*store, {claim, {}}, {}, until);
    REQUIRE(std::holds_alternative<ReleaseResult>(end));
    result = std::get<ReleaseResult>(end);
  }
  SUBCASE("on a connection that ends") {
    net.proxy.hold(Direction::requests, Whom::open_now);
    auto releasing =
        std::async(std::launch::async, [&] { return store->release(claim, {}, soon()); });
    CHECK(eventually([&] { return net.proxy.held(Direction::requests) > 0; }));
    net.proxy.drop_held(Direction::requests);
    net.proxy.close_connections();
    result = releasing.get();
  }
  CHECK(result.outcome == Released::not_held);
  CHECK(result.evicted_by);
}

TEST_CASE("an acquire that arrives after its unsure release is granted nothing") {
  Net net;
  const auto store = net.through_ready(), watcher = net.direct();
  const Claim claim = claim_on("k");
  net.proxy.hold(Direction::requests, Whom::open_now);
  CHECK_THROWS_AS(store->acquire(claim, {}, briefly()), Error);
  CHECK(release(*store, claim) == Released::not_held);
  const auto before = count_calls(net.engine.server, "evalsha");
  net.proxy.deliver_held(Direction::requests);
  REQUIRE(eventually([&] { return count_calls(net.engine.server, "evalsha") > before; }));
  CHECK(state_of(*watcher, "k").holders.empty());
  CHECK(refused(*store, claim).why == Refusal::Reason::gone);
  CHECK(enters(*watcher, claim_on("k")));
  CHECK(net.engine.server.command({"PTTL", "dlock:{k}"}).number > 0);
}

TEST_CASE("a request that waits and arrives after its unsure release joins no queue") {
  Net net;
  const auto store = net.through_ready(), holder = net.direct();
  granted(*holder, claim_on("k"));
  const Claim claim = claim_on("k");
  net.proxy.hold(Direction::requests, Whom::open_now);
  CHECK_THROWS_AS(store->acquire(claim, {true, {}}, briefly()), Error);
  CHECK(release(*store, claim) == Released::not_held);
  const auto before = count_calls(net.engine.server, "evalsha");
  net.proxy.deliver_held(Direction::requests);
  REQUIRE(eventually([&] { return count_calls(net.engine.server, "evalsha") > before; }));
  CHECK(state_of(*holder, "k").waiters.empty());
}

TEST_CASE("a renewal that arrives after the release renews nothing, and takes no key") {
  Net net;
  const auto store = net.through_ready(), other = net.direct();
  const Claim claim = taken(*store, claim_on("k"));
  net.proxy.hold(Direction::requests, Whom::open_now);
  CHECK_THROWS_AS(store->renew(claim, {.ttl = long_ttl}, briefly()), Error);
  CHECK(release(*store, claim) == Released::yes);
  const auto before = count_calls(net.engine.server, "evalsha");
  net.proxy.deliver_held(Direction::requests);
  REQUIRE(eventually([&] { return count_calls(net.engine.server, "evalsha") > before; }));
  CHECK(state_of(*other, "k").holders.empty());
  CHECK(enters(*other, claim_on("k")));
}

TEST_CASE("requests of an earlier holder that arrive late change nothing for the next") {
  Net net;
  const auto holder = net.direct();
  const Claim claim = claim_on("k"), old = claim_on("k");
  {
    const auto store = net.through();
    granted(*store, old);
    renew(*store, old);
    release(*store, old);
  }
  const Fence fence = granted(*holder, claim).fence;
  replay(net.engine.server.address(), net.proxy.recorded().at(0));
  const KeyState state = state_of(*holder, "k");
  REQUIRE(state.holders.size() == 1);
  CHECK(state.holders[0].owner == claim.owner.text);
  CHECK(state.holders[0].fence == fence);
  CHECK(state.waiters.empty());
}

TEST_CASE("requests that arrive twice count once") {
  Net net;
  const auto store = net.through_ready(), watcher = net.direct(), waiting = net.direct();
  Claim claim = claim_on("k"), next = claim_on("k");
  net.proxy.duplicate_request();
  const Fence fence = granted(*store, claim).fence;
  CHECK(state_of(*watcher, "k").holders.at(0).holds == 1);
  net.proxy.duplicate_request();
  CHECK(renew(*store, claim).has_value());
  CHECK(state_of(*watcher, "k").holders.at(0).fence == fence);
  queue_up(*waiting, next);
  net.proxy.duplicate_request();
  CHECK(release(*store, claim) == Released::yes);
  CHECK(let_in(*waiting, next));
  CHECK(state_of(*watcher, "k").holders.at(0).holds == 1);
}

TEST_CASE("a network that delivers single bytes changes nothing") {
  Net net;
  renew(*net.direct(), claim_on("k"));  // loads the script, which is long
  net.proxy.one_byte_chunks(true);
  const auto store = net.through(), waiting = net.through();
  Claim claim = taken(*store, claim_on("k")), next = claim_on("k");
  queue_up(*waiting, next);
  CHECK(release(*store, claim) == Released::yes);
  CHECK(let_in(*waiting, next));
}

TEST_CASE("a connection that breaks anywhere in a request costs the hold nothing") {
  Net net;
  for (const std::size_t bytes : {1U, 40U, 300U, 700U}) {
    for (const Direction direction : {Direction::requests, Direction::replies}) {
      CAPTURE(bytes);
      const auto store = net.through_ready();
      const Claim claim = claim_on("k");
      net.proxy.close_after(direction, direction == Direction::requests ? bytes : bytes / 20);
      granted(*store, claim);
      CHECK(state_of(*store, "k").holders.at(0).holds == 1);
      CHECK(release(*store, claim) == Released::yes);
      net.proxy.heal();
    }
  }
  CHECK(state_of(*net.direct(), "k").holders.empty());
}

TEST_CASE("a waiter whose connection breaks comes back to its place in the queue") {
  Net net;
  const auto holder = net.direct(), second = net.direct(), third = net.direct();
  const Claim held = claim_on("k"), first = claim_on("k");
  Claim next = claim_on("k"), last = claim_on("k");
  granted(*holder, held);
  LockAcquirer<Net> acquiring(net.opener(), {first});
  REQUIRE(eventually([&] { return acquiring.listener.listens(); }));
  queue_up(*second, next);
  queue_up(*third, last);
  net.proxy.refuse(true);
  net.proxy.close_connections();
  // The server may notice the end of the connection a little later; a moment after that, it drops
  // the first waiter.
  REQUIRE(eventually([&] {
    return net.engine.server.command({"CLIENT", "LIST", "TYPE", "PUBSUB"}).text.find("\n") !=
               std::string::npos &&
           std::ranges::count(net.engine.server.command({"CLIENT", "LIST", "TYPE", "PUBSUB"}).text,
                              '\n') == 2;
  }));
  release(*holder, held);
  REQUIRE(let_in(*second, next));
  CHECK(state_of(*holder, "k").waiters.size() == 1);
  REQUIRE(eventually([&] { return acquiring.listener.times_lost == 1; }));
  net.proxy.refuse(false);
  REQUIRE(eventually([&] { return state_of(*holder, "k").waiters.size() == 2; }));
  CHECK(state_of(*holder, "k").waiters[0].owner == first.owner.text);
  release(*second, next);
  CHECK(had(acquiring.result()).size() == 1);
  CHECK(acquiring.listener.times_lost == 1);
  CHECK(acquiring.listener.times_back == 1);
}

TEST_CASE("a waiter gets the lock although the server is restarted meanwhile") {
  Net net;
  auto& server = net.engine.server;
  const auto holder = net.direct();
  const Claim held = claim_on("k");
  const Fence before = granted(*holder, held).fence;
  LockAcquirer<RedisEngine> acquiring(net.engine, {claim_on("k")});
  REQUIRE(eventually([&] { return acquiring.listener.listens(); }));
  server.kill_hard();
  server.restart();
  const auto got = had(acquiring.result());
  CHECK(got.at(0).grant.fence > before);
  CHECK(acquiring.listener.times_lost == acquiring.listener.times_back);
  CHECK(!renew(*holder, held));
}

TEST_CASE("a thousand dead waiters cost one moment, and no call does more than its share") {
  Net net;
  const auto holder = net.through_ready();
  const Claim held = taken(*holder, claim_on("k"));
  {
    const auto dying = net.direct();
    for (int i = 0; i < 1000; ++i) queue_up(*dying, claim_on("k"));
  }
  const auto living = net.direct();
  Claim next = claim_on("k");
  CHECK(refused(*living, next, {true, {}}).ahead == 1000);
  const auto before = BootClock::now();
  CHECK(release(*holder, held) == Released::yes);
  CHECK(let_in(*living, next));
  // All dead waiters get one common moment to return; one moment for each 32 of them would take 31
  // s.
  CHECK(BootClock::now() - before < milliseconds(20'000));
  const auto sent = requests_in(net.proxy.recorded().at(0));
  CHECK(std::ranges::count(sent, "EVALSHA tidy") == 2);
  CHECK(state_of(*living, "k").waiters.empty());
}

}  // namespace
}  // namespace dlock::test
