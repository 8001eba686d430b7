// Redis only: a request whose connection closed or broke in the middle.

#include <sys/socket.h>

#include <algorithm>
#include <thread>

#include "base/error.hpp"
#include "base/wait.hpp"
#include "contract/engines.hpp"
#include "redis/redis_store.hpp"
#include "support/fake_server.hpp"
#include "support/fault_proxy.hpp"
#include "support/resp.hpp"

namespace dlock::test {

TEST_CASE("a login that was broken off before its answer is never relied upon") {
  RedisEngine engine;
  FaultProxy proxy(engine.server.address());
  Endpoint endpoint = endpoint_at(proxy.address());
  endpoint.database = 999;  // the server refuses it
  const auto store = redis_store(endpoint);
  const Claim claim = claim_on("k");
  const Event interrupt;
  interrupt.raise();
  proxy.hold(Direction::replies);
  CHECK_THROWS_AS(store->acquire(claim, {}, {never, interrupt.fd()}), Error);
  proxy.heal();
  CHECK_THROWS_AS(store->acquire(claim, {}, soon()), Error);
}

TEST_CASE("an acquire that arrives after its release is a ghost, for each key of a token alone") {
  RedisEngine engine;
  FaultProxy proxy(engine.server.address());
  const auto store = redis_store(endpoint_at(proxy.address()));
  Claim a = claim_on("a");
  granted(*store, a);
  Claim b = a;
  b.key = LockKey{"b"};
  proxy.hold(Direction::requests, Whom::open_now);
  CHECK_THROWS_AS(store->acquire(b, {}, briefly()), Error);
  CHECK(release(*store, a) == Released::yes);
  CHECK(release(*store, b) == Released::not_held);
  const int before = proxy.requests();
  proxy.deliver_held(Direction::requests);
  const auto watcher = engine.open();
  CHECK(refused(*watcher, b).why == Refusal::Reason::gone);
  CHECK(state_of(*watcher, "b").holders.empty());
  CHECK(proxy.requests() == before);
}

TEST_CASE("a hold that was found and released leaves a tombstone for a copy still under way") {
  RedisEngine engine;
  FaultProxy proxy(engine.server.address());
  const auto store = redis_store(endpoint_at(proxy.address()));
  const Claim claim = claim_on("k");
  renew(*store, claim_on("warm"));
  proxy.hold(Direction::requests, Whom::open_now);
  CHECK_THROWS_AS(store->acquire(claim, {}, briefly()), Error);
  granted(*store, claim);  // on another connection
  CHECK(release(*store, claim) == Released::yes);
  proxy.deliver_held(Direction::requests);
  const auto watcher = engine.open();
  CHECK(refused(*watcher, claim).why == Refusal::Reason::gone);
}

TEST_CASE("an acquire that the server refused leaves nothing behind when it is given back") {
  RedisEngine engine;
  const auto store = engine.open();
  const Claim claim = claim_on("k");
  engine.server.command({"CONFIG", "SET", "maxmemory", "1"});
  CHECK_THROWS_AS(store->acquire(claim, {}, soon()), Error);
  engine.server.command({"CONFIG", "SET", "maxmemory", "0"});
  CHECK(release(*store, claim) == Released::not_held);
  CHECK(engine.server.command({"DBSIZE"}).number == 0);
}

TEST_CASE("a client whose old request still queues is never told on its new one's behalf") {
  RedisEngine engine;
  const auto holder = engine.open();
  const auto store = engine.open();
  const Claim held = claim_on("k");
  granted(*holder, held);
  const Claim old = claim_on("k");
  queue_up(*store, old);
  Claim fresh = claim_on("k");
  queue_up(*store, fresh);  // from here on it listens only for itself
  release(*holder, held);
  // The old request got no message and was passed over.
  CHECK(let_in(*store, fresh));
  CHECK(state_of(*store, "k").waiters.empty());
  CHECK(release(*store, fresh) == Released::yes);
}

TEST_CASE("a waiter whose link was used otherwise is told that it would hear nothing") {
  RedisEngine engine;
  const auto holder = engine.open(), store = engine.open();
  granted(*holder, claim_on("k"));
  const Claim claim = claim_on("k");
  queue_up(*store, claim);
  renew(*store, claim_on("other"));
  CHECK_THROWS_AS(store->sleep(claim, soon().deadline, -1), Error);
}

TEST_CASE("a waiter listens although its asking was broken off before the answer came") {
  RedisEngine engine;
  FaultProxy proxy(engine.server.address());
  const auto holder = engine.open(), store = redis_store(endpoint_at(proxy.address()));
  Claim held = claim_on("k"), claim = claim_on("k");
  granted(*holder, held);
  queue_up(*store, claim);
  Event interrupt;
  interrupt.raise();
  proxy.hold(Direction::replies);
  CHECK_THROWS_AS(store->acquire(claim, {true, {}}, {never, interrupt.fd()}), Error);
  proxy.heal();
  release(*holder, held);
  CHECK(let_in(*store, claim));
}

TEST_CASE("a release that was done before the link broke is done, also where the script is new") {
  RedisEngine engine;
  FaultProxy proxy(engine.server.address());
  const auto store = redis_store(endpoint_at(proxy.address()));
  const Claim claim = claim_on("k");
  granted(*store, claim);
  proxy.hold(Direction::replies, Whom::open_now);
  Released answer = Released::not_held;
  std::jthread releasing([&] { answer = release(*store, claim); });
  REQUIRE(eventually([&] { return proxy.held(Direction::replies) == 1; }));
  engine.server.command({"SCRIPT", "FLUSH"});
  proxy.drop_held(Direction::replies);
  proxy.close_connections();
  releasing.join();
  CHECK(answer == Released::yes);
}

TEST_CASE("replicas are counted on the link that has written the grant, and on no other") {
  FakeServer server([](const std::vector<std::string>& words) {
    if (words.front() == "EVALSHA") {
      return say_and_close("$11\r\ngranted 1 0\r\n");
    }
    return say(words.front() == "WAIT" ? ":5\r\n" : "+OK\r\n");
  });
  RedisStore store(endpoint_at(server.address()), RedisStoreOptions{"dlock:", 1});
  const auto acquires = [&] { store.acquire(claim_on("k"), {}, soon()); };
  CHECK(fails(acquires, ErrorKind::not_replicated));
}

TEST_CASE("a client that is broken off while it waits for replicas releases at once") {
  RedisEngine engine;
  RedisStore store(endpoint_at(engine.server.address()), RedisStoreOptions{"dlock:", 1});
  const Claim claim = claim_on("k");
  Event interrupt;
  std::jthread acquiring([&] {
    const CallOptions in_a_minute{later(BootClock::now(), std::chrono::minutes(1)), interrupt.fd()};
    CHECK_THROWS_AS(store.acquire(claim, {}, in_a_minute), Error);
  });
  REQUIRE(eventually([&] {
    const std::string clients = engine.server.command({"INFO", "clients"}).text;
    return clients.find("blocked_clients:1\r\n") != std::string::npos;
  }));
  interrupt.raise();
  acquiring.join();
  const auto broken_off = BootClock::now();
  CHECK(release(store, claim) == Released::yes);
  CHECK(BootClock::now() - broken_off < std::chrono::seconds(15));
}

TEST_CASE("an answer that comes drop by drop is given up at the deadline, and when interrupted") {
  Address address;
  const Fd listener = listen_at(address);
  std::jthread dripping([&](const std::stop_token& stop) {
    std::vector<Fd> clients;
    while (!stop.stop_requested()) {
      pollfd fds[] = {{listener.get(), POLLIN, 0}};
      if (poll_until(fds, later(BootClock::now(), milliseconds(20))) > 0) {
        clients.emplace_back(accept(listener.get(), nullptr, nullptr));
        send(clients.back().get(), "$999\r\n", 6, MSG_NOSIGNAL);
      }
      for (const Fd& client : clients) send(client.get(), "x", 1, MSG_NOSIGNAL);
    }
  });
  const auto store = redis_store(endpoint_at(address));
  const auto begun = BootClock::now();
  CHECK_THROWS_AS(store->acquire(claim_on("k"), {}, {later(begun, milliseconds(300)), -1}), Error);
  // The whole answer would take twenty seconds at least.
  CHECK(BootClock::now() - begun < milliseconds(10'000));
  const Event interrupt;
  interrupt.raise();
  const auto acquires = [&] { store->acquire(claim_on("k"), {}, {never, interrupt.fd()}); };
  CHECK(fails(acquires, ErrorKind::interrupted));
}

}  // namespace dlock::test
