// A lock that is handed over by a message may be used before it is confirmed, if the message can be
// dated.

#include <optional>
#include <thread>

#include "contract/engines.hpp"
#include "redis/redis_store.hpp"
#include "support/clock_control.hpp"
#include "support/eventually.hpp"
#include "support/fault_proxy.hpp"

namespace dlock::test {
namespace {

/// A holder, and behind it a waiter on a connection of its own.
struct Pair {
  explicit Pair(RedisOptions options = {}) : engine(std::move(options)) {
    granted(*holder, held);
    queue_up(*waiter, next);
  }

  /// What the waiter is told of the release.
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
};

}  // namespace

TEST_CASE("a hand-over tells fence and lease, and the lease ends before that on the server does") {
  // On a machine that is slow enough it is read too late, and then there is nothing to see.
  std::optional<Pair> attempt;
  std::optional<Grant> grant;
  Deadline released;
  do {
    attempt.emplace();
    released = BootClock::now();
    release(*attempt->holder, attempt->held);
    grant = attempt->told();
  } while (BootClock::now() - released > milliseconds(400));
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

TEST_CASE("a hand-over that was read too late has to be confirmed") {
  Pair pair;
  release(*pair.holder, pair.held);
  // As long as a process is stopped while the message lies in its socket.
  std::this_thread::sleep_for(milliseconds(2100));
  CHECK_FALSE(pair.told());
}

TEST_CASE("a hand-over after one that was not confirmed has to be confirmed") {
  RedisEngine engine;
  const auto holder = engine.open(), stopped = engine.open(), waiter = engine.open();
  const Claim held = claim_on("k"), next = claim_on("k");
  const Claim first = claim_on("k", milliseconds(300));
  granted(*holder, held);
  queue_up(*stopped, first);
  queue_up(*waiter, next);
  release(*holder, held);
  REQUIRE(eventually([&] { return state_of(*holder, "k").holders.empty(); }));
  refused(*holder, claim_on("k"));  // whoever asks lets the next one in
  const auto wake = news(*waiter, next, Wake::Reason::granted);
  REQUIRE(wake);
  CHECK_FALSE(wake->grant);
  CHECK(*state_of(*holder, "k").holders.at(0).lease_left <= milliseconds(1000));
  CHECK(renew(*waiter, next));
}

TEST_CASE("a waiter whose token was granted unheard of, and lost, queues again with another") {
  RedisEngine engine;
  const auto holder = engine.open();
  granted(*holder, claim_on("k", milliseconds(1000)));
  Claim claim = claim_on("k");
  claim.floor = milliseconds(3000);
  LockAcquirer<RedisEngine> waiter(engine, {claim});
  REQUIRE(eventually([&] { return state_of(*holder, "k").waiters.size() == 1; }));
  // What is left of a hold whose grant the waiter never heard of: its floor.
  const std::string now = engine.server.command({"TIME"}).items.at(0).text + "000000";
  for (const char* const part : {":queue", ":waiters", ""}) {
    engine.server.command({"DEL", std::string("dlock:{k}") + part});
  }
  engine.server.command({"HSET", "dlock:{k}", claim.token.text,
                         "k 3000 " + now + " " + now + " 1 3000 300 1 - h 1 u c l"});
  const auto held = had(waiter.result());
  REQUIRE(held.size() == 1);
  CHECK(held[0].claim.token != claim.token);
}

TEST_CASE("a waiter that queued up at another server is told of its turn once") {
  RedisEngine engine;
  FaultProxy proxy(engine.server.address());
  const RedisTerms may_move{"dlock:", 0, true};
  const auto at = [&](const Address& address) {
    return std::make_unique<FixedEndpoint>(endpoint_at(address));
  };
  // By the proxy's address it is another server.
  RedisStore holder(at(engine.server.address()), may_move), waiter(at(proxy.address()), may_move);
  const Claim held = claim_on("k"), next = claim_on("k");
  granted(holder, held);
  queue_up(waiter, next);
  // Where a node of a Cluster published it, nobody here counts those who hear it elsewhere.
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

TEST_CASE("a hand-over that replicas must have has to be confirmed") {
  RedisEngine engine;
  const auto holder = engine.open();
  RedisStore waiter(std::make_unique<FixedEndpoint>(endpoint_at(engine.server.address())),
                    {"dlock:", 1, false});
  const Claim held = claim_on("k"), next = claim_on("k");
  granted(*holder, held);
  queue_up(waiter, next);
  release(*holder, held);
  const auto wake = news(waiter, next, Wake::Reason::granted);
  REQUIRE(wake);
  CHECK_FALSE(wake->grant);
}

}  // namespace dlock::test
