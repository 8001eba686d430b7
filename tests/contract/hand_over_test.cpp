// A lock that is handed over by a message may be used before it is confirmed, if the message can be
// dated.

#include <optional>
#include <thread>

#include "contract/engines.hpp"
#include "redis/redis_store.hpp"
#include "support/clock_control.hpp"

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
  CHECK(grant->lease.length == milliseconds(2000));
  CHECK(grant->lease.valid_until <= BootClock::now() + grant->lease.length);
  CHECK(grant->lease.valid_until > released + milliseconds(1500));
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
  std::this_thread::sleep_for(milliseconds(1100));
  CHECK_FALSE(pair.told());
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
