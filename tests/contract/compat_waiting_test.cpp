// How dlock waits for the lock of another library.

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/error.hpp"
#include "base/wait.hpp"
#include "compat/compat_store.hpp"
#include "contract/compat_support.hpp"
#include "support/eventually.hpp"
#include "support/stretched.hpp"

namespace dlock::test {
namespace {

const WrittenLayout& row_of(const std::string& layout) {
  return *std::find_if(written_layouts.begin(), written_layouts.end(),
                       [&](const WrittenLayout& row) { return row.layout == layout; });
}

/// A lock that no client has released or renewed for a while; the test ignores its value.
void occupy(const RedisServer& server, const WrittenLayout& row, const char* lease) {
  const auto other = compat_store(row.layout, server.address());
  granted(*other, claim_on("N"));
  if (*lease == '\0') {
    server.command({"PERSIST", row.key});
  } else {
    server.command({"PEXPIRE", row.key, lease});
  }
}

/// A waiter for `N` with a client of its own.
class CompatWaiter {
 public:
  CompatWaiter(const std::string& layout, const Address& address)
      : acquirer_([layout, address] { return compat_store(layout, address); }, {claim_on("N")}) {}
  bool is_in() const { return acquirer_.has_ended(); }
  Deadline since() const { return acquirer_.ended(); }

 private:
  LockAcquirer<RedisEngine> acquirer_;
};

/// Redis 6.2 does not count subcommands separately.
long long trackings(const RedisServer& server) {
  return count_calls(server, "client|tracking") + count_calls(server, "client");
}

bool tracks(const RedisServer& server) {
  return server.command({"INFO", "clients"}).text.find("tracking_clients:0\r") == std::string::npos;
}

}  // namespace

TEST_CASE("compat: a lock of ShedLock's that was waited for is dated by its grant") {
  const RedisServer server;
  const auto holder = compat_store("shedlock", server.address());
  const auto waiter = compat_store("shedlock", server.address());
  const Claim held = taken(*holder, claim_on("N")), claim = claim_on("N");
  refused(*waiter, claim, {true, {}});
  std::this_thread::sleep_for(milliseconds(20));  // dates have milliseconds
  const WallTime freed = wall_now();
  CHECK(release(*holder, held) == Released::yes);
  granted(*waiter, claim, {true, {}});
  const KeyState state = holder->inspect({{claim.key}, {}}, soon()).at(0);
  REQUIRE(state.holders.size() == 1);
  CHECK(state.holders[0].acquired_at >= freed - milliseconds(2));
  CHECK(waiter->renew(claim, {.granted = Fence{}}, soon()).grant);
  CHECK(release(*waiter, claim) == Released::yes);
}

TEST_CASE("compat: a waiter is woken when anybody deletes the key, whatever the layout") {
  for (const WrittenLayout& row : written_layouts) {
    CAPTURE(row.layout);
    const RedisServer server;
    occupy(server, row, "");
    CompatWaiter waiter(row.layout, server.address());
    CHECK(eventually([&] { return tracks(server); }));
    CHECK(!waiter.is_in());
    server.command({"DEL", row.key});
    CHECK(eventually([&] { return waiter.is_in(); }));
  }
}

TEST_CASE("compat: a waiter has the lock when the lease of a dead holder ends") {
  for (const char* layout : {"redis-py", "spring:registry", "redisson", "symfony"}) {
    CAPTURE(layout);
    const RedisServer server;
    occupy(server, row_of(layout), "1500");
    CompatWaiter waiter(layout, server.address());
    CHECK(eventually([&] { return waiter.is_in(); }));
  }
}

TEST_CASE("compat: where the server may not track keys, a waiter polls") {
  const RedisServer server;
  occupy(server, row_of("redis-py"), "");
  server.command({"ACL", "SETUSER", "default", "-client|tracking"});
  CompatWaiter waiter("redis-py", server.address());
  const auto asked = [&] { return count_calls(server, "evalsha"); };
  CHECK(eventually([&] { return asked() > 5; }));
  server.command({"DEL", "N"});
  CHECK(eventually([&] { return waiter.is_in(); }));
}

TEST_CASE("compat: a waiter whose second connection is cut goes on") {
  const RedisServer server;
  occupy(server, row_of("redis-py"), "");
  CompatWaiter waiter("redis-py", server.address());
  CHECK(eventually([&] { return tracks(server); }));
  // Redis 6.2 also counts the test's own request.
  const long long own = count_calls(server, "client") > 0 ? 1 : 0;
  const auto before = trackings(server);
  server.command({"CLIENT", "KILL", "TYPE", "pubsub"});
  CHECK(eventually([&] { return trackings(server) > before + own; }));
  server.command({"DEL", "N"});
  CHECK(eventually([&] { return waiter.is_in(); }));
}

TEST_CASE("compat: a waiter asks at most twice a second, also behind renewals without end") {
  const RedisServer server;
  occupy(server, row_of("redis-py"), "");
  CompatWaiter waiter("redis-py", server.address());
  CHECK(eventually([&] { return tracks(server); }));
  const auto begun = BootClock::now();
  const auto before = count_calls(server, "evalsha") + count_calls(server, "eval");
  while (passed_since(begun) < milliseconds(7'000)) {
    server.command({"PEXPIRE", "N", "60000"});
    std::this_thread::sleep_for(milliseconds(20));
  }
  const auto asked = count_calls(server, "evalsha") + count_calls(server, "eval") - before;
  // The waiter may ask eight times ahead of schedule.
  CHECK(asked <= passed_since(begun).count() / 500 + 9);
  CHECK(!waiter.is_in());
}

TEST_CASE("compat: nothing is sent after a try that was refused") {
  const RedisServer server;
  occupy(server, row_of("redis-py"), "");
  FaultProxy proxy(server.address());
  const auto store = compat_store("redis-py", proxy.address());
  const Acquired acquired = [&] {
    Listener listener;
    AcquireOptions terms;
    terms.wait = milliseconds(0);
    return acquire(*store, {claim_on("N")}, terms, listener);
  }();
  CHECK(std::holds_alternative<GaveUp>(acquired));
  // The setup, and the script, by hash and then by text.
  CHECK(proxy.requests() <= 3);
}

TEST_CASE("compat: from a release to the grant of a waiter it takes a moment") {
  const RedisServer server;
  for (const WrittenLayout& row : written_layouts) {
    CAPTURE(row.layout);
    server.command({"FLUSHALL"});
    milliseconds best{1'000'000};
    const auto a_moment = stretched(milliseconds(50));
    for (int i = 0; i < 20 && best >= a_moment; ++i) {
      const auto holder = compat_store(row.layout, server.address());
      const Claim claim = taken(*holder, claim_on("N"));
      const auto before = trackings(server);
      CompatWaiter waiter(row.layout, server.address());
      CHECK(eventually([&] { return trackings(server) > before; }));
      std::this_thread::sleep_for(milliseconds(20));
      const auto released = BootClock::now();
      release(*holder, claim);
      CHECK(eventually([&] { return waiter.is_in(); }));
      best = std::min(best, std::chrono::duration_cast<milliseconds>(waiter.since() - released));
      server.command({"FLUSHALL"});
    }
    // The best of several attempts, as the machine may be busy; polling takes 70 ms at least.
    CHECK(best < a_moment);
  }
}

}  // namespace dlock::test
