// The keys of other libraries: requests that arrive late, twice or without permission.

#include <chrono>
#include <future>

#include "base/error.hpp"
#include "compat/foreign_lock.hpp"
#include "contract/compat_support.hpp"
#include "support/eventually.hpp"

namespace dlock::test {
namespace {

long long time_left(const RedisServer& server, const std::string& key) {
  return server.command({"PTTL", key}).number;
}

bool exists(const RedisServer& server, const std::string& key) {
  return server.command({"EXISTS", key}).number == 1;
}

/// A lock in a library's layout, its holder and the next one, and an evicting client behind a
/// proxy.
struct NetOfLayout {
  explicit NetOfLayout(const WrittenLayout& of_layout) : row(of_layout) {}

  std::vector<Holder> evict() const { return store->evict(held.key, {{}, evictor}, soon()); }
  /// Grants `held` and begins an eviction of it; the proxy holds the replies. The connection was
  /// open before, and the server knew the script.
  std::future<std::vector<Holder>> begin_eviction() {
    granted(*holder, held);
    CHECK(evict().size() == 1);
    granted(*holder, held);
    proxy.hold(Direction::replies);
    return std::async(std::launch::async, [this] { return evict(); });
  }
  bool is_held() const { return exists(server, row.key); }
  /// Checks that the next holder still has the lock.
  void next_has_it() const {
    CHECK(holder->renew(next, {.granted = Fence{}}, soon()).grant);
    CHECK(release(*holder, next) == Released::yes);
  }

  const WrittenLayout& row;
  RedisServer server{};
  FaultProxy proxy{server.address()};
  StorePtr store = compat_store(row.layout, proxy.address());
  StorePtr holder = compat_store(row.layout, server.address());
  Claim held = claim_on("N");
  Claim next = claim_on("N");
};

RedisClient client_of(const RedisServer& server) {
  return RedisClient(endpoint_at(server.address()), RedisStoreOptions{});
}

}  // namespace

TEST_CASE("compat: an eviction that arrives once more evicts nobody who came in between") {
  for (const WrittenLayout& row : written_layouts) {
    CAPTURE(row.layout);
    NetOfLayout net(row);
    granted(*net.holder, net.held);
    CHECK(net.evict().size() == 1);
    CHECK(!net.is_held());
    granted(*net.holder, net.next);
    replay(net.server.address(), net.proxy.recorded().at(0));
    net.next_has_it();
  }
}

TEST_CASE("compat: an eviction repeated after its reply was lost tells whom it evicted") {
  for (const WrittenLayout& row : written_layouts) {
    CAPTURE(row.layout);
    NetOfLayout net(row);
    auto evicting = net.begin_eviction();
    // Let the replies through until the holder was read and deleted.
    let_through_until(net.proxy, [&] { return !net.is_held(); });
    granted(*net.holder, net.next);
    net.proxy.drop_held(Direction::replies);
    net.proxy.close_connections();
    const auto evicted = evicting.get();
    REQUIRE(evicted.size() == 1);
    CHECK(evicted[0].library != "");
    net.next_has_it();
  }
}

TEST_CASE("compat: an eviction finds the next holder where the first has released meanwhile") {
  for (const WrittenLayout& row : written_layouts) {
    CAPTURE(row.layout);
    NetOfLayout net(row);
    auto evicting = net.begin_eviction();
    const bool has_looked = eventually([&] { return net.proxy.held(Direction::replies) == 2; });
    CHECK(has_looked);
    CHECK(release(*net.holder, net.held) == Released::yes);
    granted(*net.holder, net.next);
    net.proxy.deliver_held(Direction::replies);
    CHECK(evicting.get().size() == 1);
    CHECK(!net.is_held());
  }
}

TEST_CASE("compat: an eviction over several servers is one at each, and comes to an end") {
  RedisServer servers[3];
  QuorumStore store = redlock_store(servers);
  const Claim claim = claim_on("N");
  granted(store, claim);
  CHECK(store.evict(claim.key, {{}, evictor}, soon()).size() == 1);
  for (const RedisServer& server : servers) CHECK(!exists(server, "N"));
  CHECK(store.evict(claim.key, {{}, evictor}, soon()).empty());
}

TEST_CASE("compat: a shared lock of Symfony's is evicted with all who hold it") {
  const RedisServer server;
  const auto store = compat_store("symfony", server.address());
  const std::string first = "q0V3s9T0m1n2b3v4c5x6z7l8k9j0h1g2f3d4s5a6p7o=";
  const std::string second = "z0V3s9T0m1n2b3v4c5x6z7l8k9j0h1g2f3d4s5a6p7o=";
  server.command({"ZADD", "N", "9999999999998", first, "9999999999999", second});
  CHECK(store->evict({"N"}, {{}, evictor}, soon()).size() == 1);
  CHECK(!exists(server, "N"));
}

TEST_CASE("compat: a late copy of a take does not cut a lease short that was renewed since") {
  for (const WrittenLayout& row : written_layouts) {
    CAPTURE(row.layout);
    const RedisServer server;
    const auto store = compat_store(row.layout, server.address());
    const Claim claim = claim_on("N", milliseconds(20'000));
    granted(*store, claim);
    CHECK(store->renew(claim, {.ttl = milliseconds(600'000)}, soon()).grant);
    granted(*store, claim);
    CHECK(time_left(server, row.key) > 400'000);
    if (std::string(row.type) != "zset") continue;
    // The member of the sorted set has an expiry of its own.
    const auto scores = server.command({"ZRANGE", "N", "0", "-1", "WITHSCORES"}).items;
    REQUIRE(scores.size() == 4);
    const auto now = std::chrono::duration_cast<milliseconds>(wall_now().time_since_epoch());
    CHECK(std::stoll(scores[1].text) > (now + milliseconds(400'000)).count());
  }
}

TEST_CASE("compat: a take given up while the server stalls leaves no lock") {
  for (const WrittenLayout& row : written_layouts) {
    CAPTURE(row.layout);
    RedisServer server;
    const auto store = compat_store(row.layout, server.address());
    const Claim claim = claim_on("N", milliseconds(600'000)), before = claim_on("N");
    granted(*store, before);  // so that it is connected, and the server knows the script
    CHECK(release(*store, before) == Released::yes);
    const auto asked = count_calls(server, "evalsha");
    server.stop();
    CHECK_THROWS_AS(store->acquire(claim, {}, briefly()), Error);
    CHECK_THROWS_AS(store->release(claim, {}, briefly()), Error);
    server.cont();
    CHECK(eventually(
        [&] { return count_calls(server, "evalsha") >= asked + 2 && !exists(server, row.key); }));
  }
}

TEST_CASE("compat: a user without the right to publish releases and evicts all the same") {
  for (const char* layout : {"spring:registry", "redisson", "redisson-fenced"}) {
    CAPTURE(layout);
    const std::string key = std::string(layout) == "spring:registry" ? "registry:N" : "N";
    const RedisServer server;
    const auto store = compat_store(layout, server.address());
    const Claim claim = claim_on("N");
    granted(*store, claim);
    server.command({"ACL", "SETUSER", "default", "resetchannels"});
    CHECK(release(*store, claim) == Released::yes);
    CHECK(!exists(server, key));
    granted(*store, claim_on("N"));
    CHECK(store->evict(claim.key, {{}, evictor}, soon()).size() == 1);
    CHECK(!exists(server, key));
  }
}

TEST_CASE("compat: a release that keeps a lock of Redisson's for a while has waiters look again") {
  const RedisServer server;
  RedisConnection listener(endpoint_at(server.address()));
  const std::vector<Request> subscribe{{"SUBSCRIBE", "redisson_lock__channel:{N}"}};
  listener.exchange(subscribe, soon());
  for (const char* layout : {"redisson", "redisson-fenced"}) {
    CAPTURE(layout);
    server.command({"FLUSHALL"});
    const auto store = compat_store(layout, server.address());
    Claim claim = claim_on("N", milliseconds(600'000));
    claim.floor = milliseconds(300'000);
    granted(*store, claim);
    CHECK(release(*store, claim) == Released::yes);
    const auto message = listener.next_message(soon().deadline, -1);
    REQUIRE(std::holds_alternative<Published>(message));
    CHECK(std::get<Published>(message).payload == "0");
    CHECK(time_left(server, "N") > 0);
    CHECK(time_left(server, "N") <= 300'000);
  }
}

TEST_CASE("compat: in a Cluster the braces that count in Redisson's names are the first pair") {
  const LockDriver driver(parse_layout("redisson"), true);
  for (const char* name : {"plain", "a{b}c", "a}b{c}", "}{a}{}"}) {
    CAPTURE(name);
    CHECK_NOTHROW(driver.check_name({name}));
  }
  for (const char* name : {"a}", "a{", "{}a", "a}b{", "{}{a}"}) {
    CAPTURE(name);
    CHECK_THROWS_AS(driver.check_name({name}), Error);
  }
}

TEST_CASE("compat: a hash with a mode is a lock of Redisson's only where all else are owners") {
  const RedisServer server;
  RedisClient client = client_of(server);
  const std::string owner = "0b0f5f7e-6c1c-4c8e-8f3a-3f1d5a9b7c21:33";
  const auto kind_of = [&](const std::vector<std::string>& fields) {
    std::vector<std::string> set{"HSET", "hash"};
    set.insert(set.end(), fields.begin(), fields.end());
    server.command({"DEL", "hash"});
    server.command(set);
    const auto lock = foreign_locks(client, "hash", {"hash"}, soon()).at(0);
    return lock ? lock->kind : "";
  };
  CHECK(kind_of({"mode", "read", owner, "1"}) == "read lock");
  CHECK(kind_of({"mode", "write", owner + ":write", "1"}) == "write lock");
  CHECK(kind_of({"mode", "write", owner + ":write", "1", owner, "1"}) == "write lock");
  CHECK(kind_of({"mode", "dark", "lang", "en"}) == "");
  CHECK(kind_of({"mode", "read", "lang", "en"}) == "");
  CHECK(kind_of({"mode", "dark", owner, "1"}) == "");
  CHECK(kind_of({"mode", "read"}) == "");
  CHECK(kind_of({"lang", "en", "file:write", "1"}) == "");
  CHECK(kind_of({owner, "1"}) == "lock");
}

}  // namespace dlock::test
