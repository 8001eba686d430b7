// Latches on every engine.

#include <atomic>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "base/error.hpp"
#include "contract/engines.hpp"
#include "lock/latch.hpp"
#include "support/fault_proxy.hpp"

namespace dlock::test {
namespace {

constexpr milliseconds long_life{600'000};
const LockKey build{"build"};

class LatchClient {
 public:
  template <typename Engine>
  explicit LatchClient(Engine& engine)
      : store_(engine.open()), latches_(dynamic_cast<Latches&>(*store_)) {}

  Latches* operator->() const { return &latches_; }
  Latches& latches() const { return latches_; }
  LatchState open(std::int64_t count, milliseconds ttl = long_life) const {
    return latches_.open_latch(build, {count, ttl}, soon());
  }
  std::int64_t arrived_after(const std::string& id) const {
    const auto state = latches_.arrive(build, {id}, soon());
    return state ? state->arrived : -1;
  }
  std::optional<LatchState> look() const { return latches_.look_at_latch(build, false, soon()); }
  std::vector<KeyState> inspect(const Query& query) const { return store_->inspect(query, soon()); }

 private:
  StorePtr store_;
  Latches& latches_;
};

/// A majority of servers and memcached keep no latch.
bool keeps_none() {
  const char* deployment = std::getenv("DLOCK_TEST_DEPLOYMENT");
  return deployment != nullptr &&
         (std::string_view(deployment) == "quorum" || std::string_view(deployment) == "memcached");
}

TEST_SUITE_BEGIN("latches" * doctest::skip(keeps_none()));

class NobodyListens final : public LatchListener {
 public:
  void waiting(const LatchState&) override { waits = true; }
  void server_lost(const std::string&) override {}
  void server_back(milliseconds) override {}
  std::atomic<bool> waits{false};
};

/// A waiter at the latch, in its own thread.
class AtTheLatch {
 public:
  template <typename Engine>
  explicit AtTheLatch(Engine& engine, std::optional<milliseconds> wait = std::nullopt)
      : client_(engine), thread_([this, wait] {
          try {
            result_ = await_latch(client_.latches(), build, wait, interrupt_.fd(), listener_);
          } catch (const std::exception& error) {
            trouble_ = error.what();
          }
        }) {}
  ~AtTheLatch() {
    interrupt_.raise();
    if (thread_.joinable()) thread_.join();
  }

  bool waits() const { return listener_.waits; }
  void interrupt() const { interrupt_.raise(); }
  LatchWait result() {
    thread_.join();
    CHECK(trouble_ == "");
    return result_;
  }

 private:
  LatchClient client_;
  NobodyListens listener_;
  Event interrupt_;
  LatchWait result_;
  std::string trouble_;
  std::thread thread_;
};

TEST_OF_ENGINES("a latch opens when as many have arrived as it counts, each of them once") {
  Engine engine;
  const LatchClient client(engine);
  CHECK_FALSE(client.open(3).open());
  CHECK(client.arrived_after("a") == 1);
  CHECK(client.arrived_after("a") == 1);
  CHECK(client.arrived_after("b") == 2);
  REQUIRE(client.look());
  CHECK_FALSE(client.look()->open());
  CHECK(client.look()->arrived == 2);
  CHECK(LatchClient(engine).arrived_after("c") == 3);
  CHECK(client.look()->open());
  // Late arrivals are accepted and change nothing.
  CHECK(client.arrived_after("d") == 3);
  CHECK(client.look()->arrived == 3);
  NobodyListens listener;
  const auto late = await_latch(client.latches(), build, std::nullopt, -1, listener);
  CHECK(late.end == LatchWait::End::open);
  CHECK_FALSE(listener.waits);
}

TEST_OF_ENGINES("whoever waits at a latch is woken by the one that opens it") {
  Engine engine;
  const LatchClient client(engine);
  client.open(2);
  AtTheLatch first(engine), second(engine);
  REQUIRE(eventually([&] { return first.waits() && second.waits(); }));
  client.arrived_after("a");
  // Both sleep by now, or look once more before they do; they would poll after 25 s.
  const auto begun = BootClock::now();
  client.arrived_after("b");
  CHECK(first.result().end == LatchWait::End::open);
  CHECK(second.result().state.arrived == 2);
  CHECK(BootClock::now() - begun < std::chrono::seconds(20));
}

TEST_OF_ENGINES("at a latch that was never opened, or has ended, nobody arrives") {
  Engine engine;
  const LatchClient client(engine);
  CHECK(client.arrived_after("a") == -1);
  CHECK_FALSE(client.look());
  client.open(2, milliseconds(300));
  AtTheLatch waiter(engine);
  CHECK(waiter.result().end == LatchWait::End::gone);
  CHECK(client.arrived_after("a") == -1);
  // A new latch of this name does not remember the arrivals of the first.
  CHECK(client.open(2).arrived == 0);
}

TEST_OF_ENGINES("opening a latch again changes nothing but its end, which it may put off") {
  Engine engine;
  const LatchClient client(engine);
  client.open(2, milliseconds(30'000));
  client.arrived_after("a");
  const auto longer = client.open(2, long_life);
  CHECK(longer.arrived == 1);
  CHECK(longer.left > milliseconds(60'000));
  CHECK(client.open(2, milliseconds(100)).left > milliseconds(60'000));
  CHECK(client.open(3, long_life * 2).count == 2);
  REQUIRE(client.look());
  CHECK(client.look()->left <= long_life);
  CHECK(client.arrived_after("b") == 2);
  CHECK(client.open(2).open());
}

TEST_OF_ENGINES("waiting at a latch ends in time, with the count as it is then, and when told to") {
  Engine engine;
  const LatchClient client(engine);
  client.open(10);
  AtTheLatch interrupted(engine);
  REQUIRE(eventually([&] { return interrupted.waits(); }));
  constexpr milliseconds wait{1000};
  bool as_it_is = false;
  // On a busy machine, the time may be over before the arrival, or the last look may be too late.
  for (int attempt = 1; attempt <= 5 && !as_it_is; ++attempt) {
    AtTheLatch short_of_time(engine, wait);
    const bool waits = eventually([&] { return short_of_time.waits(); }, wait);
    client.arrived_after(std::to_string(attempt));
    const auto result = short_of_time.result();
    CHECK(result.end == LatchWait::End::timed_out);
    as_it_is = waits && result.state.arrived == attempt;
  }
  CHECK(as_it_is);
  interrupted.interrupt();
  CHECK(interrupted.result().end == LatchWait::End::interrupted);
  NobodyListens listener;
  const auto at_once = await_latch(client.latches(), build, milliseconds(0), -1, listener);
  CHECK(at_once.end == LatchWait::End::timed_out);
  CHECK_FALSE(listener.waits);
}

TEST_OF_ENGINES("a latch and the lock of the same key have nothing to do with each other") {
  Engine engine;
  const LatchClient client(engine);
  const auto store = engine.open();
  const auto claim = claim_on(build.text);
  granted(*store, claim);
  client.open(1);
  CHECK(client.arrived_after("a") == 1);
  CHECK(release(*store, claim) == Released::yes);
  CHECK(enters(*store, claim_on(build.text)));
  CHECK(client.look()->open());
}

TEST_OF_ENGINES("inspect tells of a latch, alone and beside the lock of its name, till it ends") {
  Engine engine;
  const LatchClient client(engine);
  const auto store = engine.open();
  const LockKey odd{"odd{}% " + std::string(300, 'x')}, lock{"nightly"};
  client.open(3);
  client.arrived_after("a");
  client.arrived_after("b");
  client.latches().open_latch(odd, {1, long_life}, soon());
  granted(*store, claim_on(lock.text));
  // A server outside of the majority may lag behind.
  REQUIRE(eventually([&] {
    const auto states = client.inspect({{build}, {}});
    return states.at(0).latch && states.at(0).latch->arrived == 2;
  }));
  const auto one = client.inspect({{build}, {}}).at(0);
  CHECK(one.latch->count == 3);
  CHECK(one.latch->left > milliseconds(60'000));
  CHECK(one.latch->left <= long_life);
  CHECK_FALSE(one.of_lock());
  granted(*store, claim_on(build.text));
  std::vector<KeyState> all;
  REQUIRE(eventually([&] {
    all = client.inspect({{}, {"*"}});
    return all.size() == 3 && all[0].holders.size() == 1;
  }));
  CHECK(all[0].key == build);
  CHECK(all[0].latch.has_value());
  CHECK(all[1].key == lock);
  CHECK_FALSE(all[1].latch);
  CHECK(all[2].key == odd);
  CHECK_FALSE(all[2].of_lock());
  CHECK(client.inspect({{}, {"odd*"}}).size() == 1);
  client.latches().open_latch({"short"}, {1, milliseconds(300)}, soon());
  CHECK(eventually([&] { return client.inspect({{}, {"sh*"}}).empty(); }));
  CHECK_FALSE(client.inspect({{LockKey{"short"}}, {}}).at(0).latch);
}

TEST_OF_ENGINES("of many that arrive together each counts once") {
  Engine engine;
  const LatchClient client(engine);
  constexpr int clients = 8, each = 12;
  client.open(clients * each / 2);
  std::vector<std::thread> threads;
  for (int i = 0; i < clients; ++i) {
    threads.emplace_back([&engine, i] {
      const LatchClient own(engine);
      // Every participant arrives twice, through two clients.
      for (int k = 0; k < each; ++k) own.arrived_after(std::to_string(i / 2 * each + k));
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(client.look()->arrived == clients * each / 2);
  CHECK(client.look()->open());
}

TEST_CASE("what is no latch is refused, and not touched") {
  RedisEngine engine;
  const LatchClient client(engine);
  const auto refused = [&] {
    return fails([&] { client.open(2); }, ErrorKind::wrong_data, "is not a latch");
  };
  const auto store = engine.open();
  granted(*store, claim_on(build.text));
  const auto is_hidden = [&] {
    CHECK_THROWS_AS(store->inspect({{build}, {}}, soon()), Error);
    const auto all = store->inspect({{}, {"*"}}, soon());
    return all.size() == 1 && all[0].holders.size() == 1 && !all[0].latch;
  };
  engine.server.command({"SET", "dlock:{build}:latch", "mine"});
  CHECK(refused());
  CHECK(is_hidden());
  CHECK(engine.server.command({"GET", "dlock:{build}:latch"}).text == "mine");
  engine.server.command({"DEL", "dlock:{build}:latch"});
  engine.server.command({"ZADD", "dlock:{build}:latch", "1", "mine"});
  CHECK(refused());
  engine.server.command({"DEL", "dlock:{build}:latch"});
  // Data without an expiry are not a latch of dlock either.
  engine.server.command({"ZADD", "dlock:{build}:latch", "0", "=2"});
  CHECK(refused());
  CHECK(is_hidden());
}

TEST_CASE("an arrival whose answer is lost is said again, and counts once") {
  RedisEngine engine;
  FaultProxy proxy(engine.server.address());
  const auto store = redis_store(endpoint_at(proxy.address()));
  auto& latches = dynamic_cast<Latches&>(*store);
  latches.open_latch(build, {2, long_life}, soon());
  // The request arrives, but the connection ends instead of an answer.
  proxy.drop_replies(1);
  const auto state =
      latches.arrive(build, {"a"}, {later(BootClock::now(), milliseconds(8000)), -1});
  REQUIRE(state);
  CHECK(state->arrived == 1);
  CHECK(engine.server.command({"ZCARD", "dlock:{build}:latch"}).number == 2);
}

TEST_CASE("a waiter at a latch outlives a restart of its server, and is told when it is gone") {
  RedisEngine engine({.config = {"appendonly yes", "appendfsync always"}});
  const LatchClient client(engine);
  client.open(2);
  client.arrived_after("a");
  AtTheLatch waiter(engine);
  REQUIRE(eventually([&] { return waiter.waits(); }));
  engine.server.restart();
  client.arrived_after("b");
  CHECK(waiter.result().end == LatchWait::End::open);
}

TEST_SUITE_END();

}  // namespace
}  // namespace dlock::test
