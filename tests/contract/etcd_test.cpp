#include <future>
#include <map>
#include <string_view>
#include <thread>

#include "base/text.hpp"
#include "cas/cas_store.hpp"
#include "contract/engines.hpp"
#include "etcd/etcd_backend.hpp"
#include "etcd/etcd_json.hpp"
#include "support/etcd_servers.hpp"
#include "support/fake_server.hpp"
#include "support/fault_proxy.hpp"
#include "support/files.hpp"
#include "support/skip.hpp"

// Locks in etcd: the number of requests, refusals, and the fate of leases.

namespace dlock::test {
namespace {

/// Renews all leases, as clients do that keep asking.
void keep_all_alive(EtcdServers& etcd) {
  for (const EtcdEntry& entry : etcd.entries()) {
    if (entry.lease != 0) etcd.ask("lease/keepalive", {{"ID", std::to_string(entry.lease)}});
  }
}

/// A client with counted requests.
class CountedEtcdClient {
 public:
  explicit CountedEtcdClient(const EtcdServers& etcd)
      : proxy_(Address{"", etcd.endpoint(0).port}, true) {
    Endpoint endpoint = etcd.endpoint(0);
    endpoint.port = proxy_.address().port;
    store = etcd_store({endpoint});
  }

  /// The requests since the last call, by path. One release in sixteen also looks for leftovers;
  /// that is left out.
  std::string requests() {
    std::string since;
    const auto now = recorded();
    for (const auto& [path, count] : now) {
      const int more = count - counted_[path];
      if (more > 0) since += std::to_string(more) + " " + path + "\n";
    }
    counted_ = now;
    return since;
  }

  /// Waits until such a request was sent since the last call of requests(); the next call includes
  /// it.
  bool sends(const std::string& path) {
    return eventually([&] { return recorded()[path] > counted_[path]; });
  }

 private:
  /// The number of requests by path.
  std::map<std::string, int> recorded() {
    constexpr std::string_view post = "POST /v3/";
    std::map<std::string, int> counts;
    for (const std::string& sent : proxy_.recorded()) {
      for (auto at = sent.find(post), next = at; at != std::string::npos; at = next) {
        next = sent.find(post, at + 1);
        const std::string request = sent.substr(at + post.size(), next - at - post.size());
        // A look for leftovers is a read with a limit.
        if (request.find("\"limit\":") != std::string::npos) continue;
        ++counts[request.substr(0, request.find(' '))];
      }
    }
    return counts;
  }

  FaultProxy proxy_;
  std::map<std::string, int> counted_;

 public:
  StorePtr store;
};

TEST_CASE("etcd: a lock takes two round trips, a renewal and a release one") {
  if (is_missing<EtcdServers>()) return;
  CountedEtcdClient client(cleared<EtcdServers>());
  const Claim claim = taken(*client.store, claim_on("k"));
  CHECK(client.requests() == "1 kv/range\n1 kv/txn\n1 lease/grant\n");
  CHECK(renew(*client.store, claim));
  CHECK(client.requests() == "1 kv/range\n1 lease/keepalive\n");
  CHECK(release(*client.store, claim) == Released::yes);
  // The release does not wait for the end of the lease.
  CHECK(client.sends("lease/revoke"));
  CHECK(client.requests() == "1 kv/txn\n1 lease/revoke\n");
}

TEST_CASE("etcd: a hand-over costs the holder a transaction, and the waiter a confirmation") {
  if (is_missing<EtcdServers>()) return;
  EtcdServers& etcd = cleared<EtcdServers>();
  CountedEtcdClient holder(etcd), waiter(etcd);
  const Claim held = taken(*holder.store, claim_on("k")), waits = claim_on("k");
  queue_up(*waiter.store, waits);
  waiter.requests();
  std::optional<Wake> wake;
  std::thread sleeping([&] { wake = news(*waiter.store, waits, Wake::Reason::granted); });
  REQUIRE(eventually([&] { return waiter.requests().find("watch") != std::string::npos; }));
  // From now on the holder knows the waiter.
  CHECK(renew(*holder.store, held));
  holder.requests();
  CHECK(release(*holder.store, held) == Released::yes);
  sleeping.join();
  CHECK(holder.sends("lease/revoke"));
  CHECK(holder.requests() == "1 kv/txn\n1 lease/revoke\n");
  REQUIRE(wake);
  // The command may start on this message.
  REQUIRE(wake->grant);
  CHECK(wake->grant->lease.valid_until > BootClock::now());
  CHECK(waiter.requests() == "");
  const auto confirmed = renew(*waiter.store, waits);
  REQUIRE(confirmed);
  CHECK(confirmed->fence == wake->grant->fence);
  CHECK(waiter.requests() == "1 kv/range\n1 kv/txn\n1 lease/keepalive\n");
}

TEST_CASE("etcd: a record of the largest size is kept") {
  if (is_missing<EtcdServers>()) return;
  EtcdBackend backend(cleared<EtcdServers>().endpoints(), "etcd://of-the-test");
  const Snapshot none = backend.read("dlock:k:a", nullptr, soon());
  const Update large{std::string(backend.largest_record(), 'x')};
  CHECK(std::holds_alternative<Version>(backend.write("dlock:k:a", none, large, soon())));
}

TEST_CASE("etcd: of many holds one is released without a write of the record that all share") {
  if (is_missing<EtcdServers>()) return;
  EtcdServers& etcd = cleared<EtcdServers>();
  CountedEtcdClient client(etcd);
  const auto others = etcd_store(etcd.endpoints());
  const Claim claim = claim_of("own", "k", no_limit);
  constexpr std::size_t many = 10;
  for (std::size_t i = 0; i < many; ++i) {
    granted(*others, claim_of("r" + std::to_string(i), "k", no_limit));
  }
  granted(*client.store, claim);
  client.requests();
  CHECK(release(*client.store, claim) == Released::yes);
  CHECK(client.requests() == "1 kv/range\n1 lease/revoke\n");
  CHECK(state_of(*others, "k").holders.size() == many);
  CHECK(release(*client.store, claim) == Released::not_held);
}

TEST_CASE("etcd: of many readers that are let in together all hear of it") {
  if (is_missing<EtcdServers>()) return;
  EtcdServers& etcd = cleared<EtcdServers>();
  const auto holder = etcd_store(etcd.endpoints());
  // Long enough for all of them to queue up on a busy machine.
  const Claim held = taken(*holder, claim_on("k", std::chrono::minutes(10)));
  // A transaction of etcd has room for 128 operations.
  constexpr int many = 150;
  const auto queue = etcd_store(etcd.endpoints());
  std::vector<Claim> readers;
  for (int i = 0; i < many; ++i) {
    readers.push_back(claim_of("r" + std::to_string(i), "k", no_limit));
    queue_up(*queue, readers.back());
    // A waiter lives for 30 s unless it asks again; on a busy machine the others need longer.
    constexpr int some = 10;
    if (i % some == 0) keep_all_alive(etcd);
  }
  keep_all_alive(etcd);
  CHECK(release(*holder, held) == Released::yes);
  CHECK(state_of(*holder, "k").holders.size() == many);
  int told = 0;
  for (const std::string& name : etcd.keys()) {
    if (name.find('\n') == std::string::npos) continue;
    const auto value =
        range_in(etcd.ask("kv/range", {{"key", to_base64(name)}})).entries.at(0).value;
    if (value.starts_with("grant ")) ++told;
  }
  CHECK(told == many);
}

TEST_CASE("etcd: a member that stands still is passed over, and a member that was killed") {
  if (is_missing<EtcdServers>()) return;
  EtcdServers etcd({.members = 3});
  const auto store = etcd_store(etcd.endpoints());
  const Claim claim = claim_on("k");
  const Fence before = granted(*store, claim).fence;
  etcd.stop(0);
  const auto renewed = [&] { return renew(*store, claim).has_value(); };
  CHECK(eventually([&] { return without_error(renewed); }));
  etcd.cont(0);
  etcd.kill_hard(1);
  const auto released = [&] { return release(*store, claim) != Released::left_queue; };
  CHECK(eventually([&] { return without_error(released); }));
  const auto next = claim_on("k");
  std::optional<Fence> after;
  const auto acquired = [&] {
    const auto answer = store->acquire(next, {}, soon());
    if (const auto* grant = std::get_if<Grant>(&answer)) after = grant->fence;
    return after.has_value();
  };
  CHECK(eventually([&] { return without_error(acquired); }));
  CHECK(after > before);
}

TEST_CASE("etcd: a server whose answer is a proxy's, or that has lost the lead, is passed over") {
  if (is_missing<EtcdServers>()) return;
  EtcdServers& etcd = cleared<EtcdServers>();
  const std::string lost_lead = R"("message":"not a primary lessor","code":2})";
  for (const Step& instead :
       {say_http("<html><body>no upstream</body></html>\n", "502 Bad Gateway"),
        say_http(R"({"message":"no upstream"})", "503 Service Unavailable"),
        say_http(R"({"error":{"code":503,"message":"no upstream"}})", "503 Service Unavailable"),
        say_http(R"({"error":"not a primary lessor",)" + lost_lead, "500 Internal Server Error"),
        say_http("{" + lost_lead, "500 Internal Server Error")}) {
    CAPTURE(instead.bytes);
    FakeServer other({instead}, true);
    Endpoint first = etcd.endpoint(0);
    first.port = other.address().port;
    const auto store = etcd_store({first, etcd.endpoint(0)});
    const Claim claim = taken(*store, claim_on("k"));
    CHECK(other.connections() > 0);
    CHECK(renew(*store, claim));
    CHECK(release(*store, claim) == Released::yes);
  }
}

TEST_CASE(
    "etcd: a lease that a leader which is being replaced tells no end of has its length left") {
  const std::string body = R"({"ID":"1","TTL":"9223372036","grantedTTL":"30"})";
  FakeServer server({say_http(body)}, true);
  Endpoint endpoint;
  endpoint.host = "127.0.0.1";
  endpoint.port = server.address().port;
  EtcdBackend etcd({endpoint}, "etcd");
  const auto left = etcd.leases()->left_of({1}, soon());
  REQUIRE(left.size() == 1);
  CHECK(left.front().length == milliseconds(30'000));
  CHECK(left.front().left == milliseconds(30'000));
}

TEST_CASE("etcd: a release that has come is told, though its connection ends without the answer") {
  if (is_missing<EtcdServers>()) return;
  EtcdServers& etcd = cleared<EtcdServers>();
  FaultProxy proxy(Address{"", etcd.endpoint(0).port}, true);
  Endpoint endpoint = etcd.endpoint(0);
  endpoint.port = proxy.address().port;
  const auto store = etcd_store({endpoint});
  const Claim claim = taken(*store, claim_on("k"));
  proxy.hold(Direction::replies, Whom::open_now);
  auto releasing = std::async(std::launch::async, [&] { return release(*store, claim); });
  CHECK(eventually([&] { return proxy.held(Direction::replies) > 0; }));
  proxy.close_connections();
  CHECK(releasing.get() == Released::yes);
}

EtcdRequest new_user(const std::string& name) {
  return {"auth/user/add", {{"name", name}, {"password", "s3cret-of-the-test"}}};
}

/// Makes the etcd require logins; returns the endpoint of its root user.
Endpoint only_for_users(EtcdServers& etcd) {
  etcd.ask("auth/role/add", {{"name", "root"}});
  etcd.ask("auth/user/add", new_user("root").fields);
  etcd.ask("auth/user/grant", {{"user", "root"}, {"role", "root"}});
  etcd.ask("auth/enable", nlohmann::json::object());
  Endpoint server = etcd.endpoint(0);
  server.user = "root";
  server.password = "s3cret-of-the-test";
  return server;
}

TEST_CASE("etcd: a client whose token has expired logs in anew, and may watch again") {
  if (is_missing<EtcdServers>()) return;
  const TempDir dir;
  write_file(dir / "key", "known to this etcd only");
  EtcdServers etcd(
      {.flags = {"--auth-token", "jwt,priv-key=" + dir / "key" + ",sign-method=HS256,ttl=3s"}});
  const Endpoint server = only_for_users(etcd);
  const auto store = etcd_store({server});
  const Claim claim = taken(*store, claim_on("k"));
  EtcdBackend waiter({server}, "etcd");
  RecordWatch watch{"other"};
  watch.after = waiter.read("other", nullptr, soon()).revision;
  std::this_thread::sleep_for(std::chrono::seconds(4));  // longer than the token's ttl
  const auto why = waiter.watch(watch, soon().deadline, -1);
  REQUIRE(std::holds_alternative<Wake::Reason>(why));
  CHECK(std::get<Wake::Reason>(why) == Wake::Reason::changed);
  waiter.read("other", nullptr, soon());
  CHECK(renew(*store, claim));
  CHECK(release(*store, claim) == Released::yes);
}

TEST_CASE("etcd: a holder goes on renewing when the users change, and its token is of before") {
  if (is_missing<EtcdServers>()) return;
  const TempDir dir;
  write_file(dir / "key", "known to this etcd only");
  EtcdServers etcd(
      {.flags = {"--auth-token", "jwt,priv-key=" + dir / "key" + ",sign-method=HS256,ttl=10m"}});
  const Endpoint server = only_for_users(etcd);
  const auto store = etcd_store({server});
  const Claim claim = taken(*store, claim_on("k"));
  EtcdClient administrator({server}, "etcd");
  administrator.done(new_user("another"), soon());
  CHECK(renew(*store, claim));
  administrator.done(new_user("third"), soon());
  CHECK(release(*store, claim) == Released::yes);
}

}  // namespace

namespace {

// Leases of an engine without a clock, where several stores renew one hold: the store that acquired
// it, and the store of the renewal thread while the client waits for another key.

/// The lease of the only liveness entry.
std::int64_t lease_of_life(EtcdServers& etcd) {
  std::int64_t lease = 0;
  for (const EtcdEntry& entry : etcd.entries()) {
    if (entry.key.find('\n') != std::string::npos) lease = entry.lease;
  }
  return lease;
}

}  // namespace

TEST_CASE("etcd: a store goes on with the lease to which another one has moved its hold") {
  if (is_missing<EtcdServers>()) return;
  EtcdServers etcd;
  const auto first = etcd_store(etcd.endpoints()), second = etcd_store(etcd.endpoints());
  const Claim claim = taken(*first, claim_on("k"));
  const auto lease = lease_of_life(etcd);
  CHECK(lease != 0);
  RenewalOptions longer;
  longer.ttl = 3 * long_ttl;
  REQUIRE(second->renew(claim, longer, soon()).grant);
  CHECK(lease_of_life(etcd) != lease);
  CHECK(renew(*first, claim));
  CHECK(renew(*second, claim));
  CHECK(release(*first, claim) == Released::yes);
}

TEST_CASE("etcd: a lease that it makes longer than was asked for serves all stores of a hold") {
  if (is_missing<EtcdServers>()) return;
  // The shortest lease is one and a half times as long as an election.
  EtcdServers etcd({.flags = {"--election-timeout", "5000"}});
  const auto first = etcd_store(etcd.endpoints()), second = etcd_store(etcd.endpoints());
  const Claim claim = taken(*first, claim_on("k", milliseconds(2000)));
  const auto lease = lease_of_life(etcd);
  CHECK(lease != 0);
  for (int i = 0; i < 2; ++i) {
    CHECK(renew(*second, claim));
    CHECK(renew(*first, claim));
  }
  CHECK(lease_of_life(etcd) == lease);
  CHECK(release(*first, claim) == Released::yes);
}

TEST_CASE("etcd: a --min-hold lasts although the job ended before its hand-over was confirmed") {
  if (is_missing<EtcdServers>()) return;
  EtcdServers etcd;
  const auto holder = etcd_store(etcd.endpoints());
  auto waiter = etcd_store(etcd.endpoints());
  const Claim held = claim_on("k");
  Claim next = claim_on("k");
  next.floor = long_ttl;
  granted(*holder, held);
  queue_up(*waiter, next);
  release(*holder, held);
  REQUIRE(news(*waiter, next, Wake::Reason::granted));
  CHECK(release(*waiter, next) == Released::yes);
  waiter.reset();
  const Refusal refusal = refused(*holder, claim_on("k"));
  REQUIRE(refusal.held_by.size() == 1);
  CHECK(refusal.held_by[0].kept);
}

}  // namespace dlock::test
