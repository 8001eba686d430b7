// A waiter may use a lock on the hand-over message, before it confirms it, if the age of the
// message is known.

#include <optional>
#include <thread>

#include "contract/engines.hpp"
#include "redis/redis_store.hpp"
#include "support/fault_proxy.hpp"

namespace dlock::test {
namespace {

/// A holder, and a waiter with its own connection.
struct Pair {
  explicit Pair(RedisOptions options = {}) : engine(std::move(options)) {
    granted(*holder, held);
    asked = BootClock::now();
    queue_up(*waiter, next);
  }

  /// The grant in the waiter's message about the release.
  std::optional<Grant> told() {
    const auto wake = news(*waiter, next, Wake::Reason::granted);
    REQUIRE(wake);
    return wake->grant;
  }

  RedisEngine engine;
  StorePtr holder = engine.open();
  StorePtr waiter = engine.open();
  Claim held = claim_on("k");
  Claim next = claim_on("k");
  Deadline asked{};  ///< before the waiter's request
};

}  // namespace

TEST_CASE("a hand-over tells fence and lease, and the lease ends before that on the server does") {
  // On a slow machine, the waiter reads the message too late to test anything. The time of the
  // waiter's request is subtracted from the lease.
  std::optional<Pair> attempt;
  std::optional<Grant> grant;
  Deadline released;
  int tries = 0;
  do {
    REQUIRE(++tries <= 10);
    attempt.emplace();
    released = BootClock::now();
    release(*attempt->holder, attempt->held);
    grant = attempt->told();
  } while (BootClock::now() - attempt->asked > milliseconds(400));
  Pair& pair = *attempt;
  REQUIRE(grant);
  CHECK_FALSE(grant->confirmed);
  CHECK(grant->lease.length == milliseconds(6000));
  CHECK(grant->lease.valid_until <= BootClock::now() + grant->lease.length);
  CHECK(grant->lease.valid_until > released + milliseconds(5500));
  const auto lease_left = state_of(*pair.holder, "k").holders.at(0).lease_left;
  CHECK(grant->lease.valid_until < BootClock::now() + *lease_left);
  const auto renewed = renew(*pair.waiter, pair.next);
  REQUIRE(renewed);
  CHECK(renewed->confirmed);
  CHECK(renewed->fence == grant->fence);
}

TEST_CASE(
    "a server that refuses writes tells no waiter of a grant, and the holder keeps the lock") {
  Pair pair;
  pair.engine.server.command({"CONFIG", "SET", "min-replicas-to-write", "1"});
  CHECK_THROWS_AS(pair.holder->release(pair.held, {}, soon()), Error);
  const auto heard = pair.waiter->sleep(pair.next, later(BootClock::now(), milliseconds(300)), -1);
  CHECK(heard.why != Wake::Reason::granted);
  pair.engine.server.command({"CONFIG", "SET", "min-replicas-to-write", "0"});
  CHECK(renew(*pair.holder, pair.held));
  CHECK(release(*pair.holder, pair.held) == Released::yes);
  CHECK(pair.told());
}

TEST_CASE("a hand-over that was read too late has to be confirmed") {
  Pair pair;
  release(*pair.holder, pair.held);
  // Simulates a process that is stopped while the message waits in its socket.
  std::this_thread::sleep_for(milliseconds(2100));
  CHECK_FALSE(pair.told());
}

TEST_CASE("a hand-over after one that was not confirmed has to be confirmed") {
  RedisEngine engine;
  Deadline handed_over;
  std::optional<Wake> wake;
  std::vector<Holder> holders;
  bool is_confirmed = false;
  int attempt = 0;
  // On a slow machine, this hand-over may stay unconfirmed as well.
  do {
    const std::string key = "k" + std::to_string(attempt++);
    const auto holder = engine.open(), stopped = engine.open(), waiter = engine.open();
    const Claim held = claim_on(key), next = claim_on(key);
    const Claim first = claim_on(key, milliseconds(300));
    granted(*holder, held);
    queue_up(*stopped, first);
    queue_up(*waiter, next);
    release(*holder, held);
    REQUIRE(eventually([&] { return state_of(*holder, key).holders.empty(); }));
    handed_over = BootClock::now();
    refused(*holder, claim_on(key));  // any request admits the next waiter
    wake = news(*waiter, next, Wake::Reason::granted);
    REQUIRE(wake);
    holders = state_of(*holder, key).holders;
    is_confirmed = renew(*waiter, next).has_value();
  } while (attempt < 10 && BootClock::now() - handed_over > milliseconds(900));
  CHECK_FALSE(wake->grant);
  REQUIRE(holders.size() == 1);
  CHECK(*holders[0].lease_left <= milliseconds(1000));
  CHECK(is_confirmed);
}

TEST_CASE("a waiter whose token was granted unheard of, and lost, queues again with another") {
  RedisEngine engine;
  const auto holder = engine.open();
  granted(*holder, claim_on("k"));
  Claim claim = claim_on("k");
  claim.floor = long_ttl;
  LockAcquirer<RedisEngine> waiter(engine, {claim});
  REQUIRE(eventually([&] { return waiter.listener.listens(); }));
  // The rest of a hold whose grant never reached the waiter: its min-hold. Written in one step, as
  // the waiter may ask at any moment.
  const std::string now = engine.server.command({"TIME"}).items.at(0).text + "000000";
  const std::string left = std::to_string(claim.floor.count());
  engine.server.command(
      {"EVAL", "redis.call('DEL', unpack(KEYS)) redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])", "3",
       "dlock:{k}", "dlock:{k}:queue", "dlock:{k}:waiters", claim.token.text,
       "k " + left + " " + now + " " + now + " 1 " + left + " 300 1 - h 1 u c l"});
  // A waiter that loses its connection asks again.
  engine.server.command({"CLIENT", "KILL", "TYPE", "pubsub"});
  REQUIRE(eventually([&] {
    const auto queue = engine.server.command({"ZRANGE", "dlock:{k}:queue", "0", "-1"}).items;
    return queue.size() == 1 && queue[0].text != claim.token.text;
  }));
  engine.server.command({"DEL", "dlock:{k}"});
  engine.server.command({"CLIENT", "KILL", "TYPE", "pubsub"});
  const auto held = had(waiter.result());
  REQUIRE(held.size() == 1);
  CHECK(held[0].claim.token != claim.token);
}

TEST_CASE("a waiter that queued up at another server is told of its turn once") {
  RedisEngine engine;
  FaultProxy proxy(engine.server.address());
  const RedisStoreOptions may_move{"dlock:", 0, true};
  const auto at = [&](const Address& address) { return endpoint_at(address); };
  // The proxy's address makes it another server.
  RedisStore holder(at(engine.server.address()), may_move), waiter(at(proxy.address()), may_move);
  const Claim held = claim_on("k"), next = claim_on("k");
  granted(holder, held);
  queue_up(waiter, next);
  // This simulates a message published by another node of a Cluster: this server counts no
  // subscriber.
  proxy.close_connections();
  REQUIRE(eventually([&] { return engine.server.command({"PUBSUB", "CHANNELS"}).items.empty(); }));
  engine.server.command({"CONFIG", "RESETSTAT"});
  release(holder, held);
  const std::string stats = engine.server.command({"INFO", "commandstats"}).text;
  CHECK(stats.find("cmdstat_publish:calls=1,") != std::string::npos);
  CHECK(state_of(holder, "k").holders.at(0).owner == next.owner.text);
}

TEST_CASE("a hand-over by a server whose clock was set has to be confirmed") {
  for (const auto step : {std::chrono::seconds(-30), std::chrono::seconds(30)}) {
    ShimClock clock;
    Pair pair(under(clock));
    clock.advance(step);
    release(*pair.holder, pair.held);
    CHECK_FALSE(pair.told());
  }
}

TEST_CASE("a hand-over drops the waiter behind that has given no sign of life for 75 s") {
  ShimClock clock;
  Pair pair(under(clock));
  const StorePtr silent = pair.engine.open();
  queue_up(*silent, claim_on("k"));
  for (int i = 0; i < 3; ++i) {
    clock.advance(std::chrono::seconds(19));
    REQUIRE(renew(*pair.holder, pair.held));
  }
  // The waiter before it asks again, else a renewal drops both.
  queue_up(*pair.waiter, pair.next);
  clock.advance(std::chrono::seconds(19));
  // Now both get the end of the lease, and the hand-over has nothing else to send.
  REQUIRE(pair.holder->renew(pair.held, {.ttl = milliseconds(3000)}, soon()).grant);
  REQUIRE(state_of(*pair.holder, "k").waiters.size() == 2);
  release(*pair.holder, pair.held);
  CHECK(state_of(*pair.holder, "k").waiters.empty());
}

TEST_CASE("a hand-over that replicas must have has to be confirmed") {
  RedisEngine engine;
  const auto holder = engine.open();
  RedisStore waiter(endpoint_at(engine.server.address()), {"dlock:", 1, false});
  const Claim held = claim_on("k"), next = claim_on("k");
  granted(*holder, held);
  queue_up(waiter, next);
  release(*holder, held);
  const auto wake = news(waiter, next, Wake::Reason::granted);
  REQUIRE(wake);
  CHECK_FALSE(wake->grant);
}

}  // namespace dlock::test
