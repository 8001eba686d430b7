// What the place of records in ZooKeeper does beneath the contract of a store.

#include "base/error.hpp"
#include "contract/engines.hpp"
#include "support/installed.hpp"
#include "support/zookeeper_servers.hpp"
#include "zookeeper/zookeeper_backend.hpp"

namespace dlock::test {
namespace {

TEST_CASE("ZooKeeper: a client that turns to another record and back still hears messages") {
  if (is_missing<ZooKeeperServers>()) return;
  ZooKeeperServers servers;
  const auto open = [&] {
    return ZooKeeperBackend(servers.endpoints(), "zk", "", "x:", milliseconds(20'000));
  };
  ZooKeeperBackend waiter = open(), holder = open();
  const Snapshot none = waiter.read("x:a", "channel", soon());
  Update entry{"an entry"};
  entry.names_connection = true;
  REQUIRE(std::holds_alternative<Version>(waiter.write("x:a", none, entry, soon())));
  waiter.read("x:b", "channel", soon());
  waiter.read("x:a", "channel", soon());
  const Snapshot seen = holder.read("x:a", "", soon());
  CHECK(seen.alive == std::set<std::string>{waiter.connection_id()});
  const Update handed{"handed over", {}, {{"channel", "yours", waiter.connection_id()}}};
  REQUIRE(std::holds_alternative<Version>(holder.write("x:a", seen, handed, soon())));
  const auto heard = waiter.next_message("channel", soon().deadline, -1);
  REQUIRE(std::holds_alternative<std::string>(heard));
  CHECK(std::get<std::string>(heard) == "yours");
}

TEST_CASE("ZooKeeper: a write meant for a record that was removed and made again does not count") {
  if (is_missing<ZooKeeperServers>()) return;
  ZooKeeperServers servers;
  const auto open = [&] {
    return ZooKeeperBackend(servers.endpoints(), "zk", "", "x:", milliseconds(20'000));
  };
  ZooKeeperBackend late = open(), other = open();
  const Snapshot none = other.read("x:a", "", soon());
  REQUIRE(std::holds_alternative<Version>(other.write("x:a", none, {"first"}, soon())));
  const Snapshot old = late.read("x:a", "", soon());
  Update vacant{"nobody"};
  vacant.vacant_after = Fence{1};
  const Snapshot first = other.read("x:a", "", soon());
  const auto removed = other.write("x:a", first, vacant, soon());
  REQUIRE(std::holds_alternative<Version>(removed));
  CHECK(std::get<Version>(removed) == 0);
  REQUIRE(std::holds_alternative<Version>(
      other.write("x:a", other.read("x:a", "", soon()), {"second"}, soon())));
  const auto refused = late.write("x:a", old, {"late"}, soon());
  REQUIRE(std::holds_alternative<Snapshot>(refused));
  CHECK(std::get<Snapshot>(refused).text == "second");
}

TEST_CASE("ZooKeeper: a record of nearly 1 MB is kept, and a larger one refused in words") {
  if (is_missing<ZooKeeperServers>()) return;
  ZooKeeperServers servers;
  ZooKeeperBackend backend(servers.endpoints(), "zk", "", "x:", milliseconds(20'000));
  const Snapshot none = backend.read("x:a", "", soon());
  const Update large{std::string(1'000'000, 'x')};
  REQUIRE(std::holds_alternative<Version>(backend.write("x:a", none, large, soon())));
  const Snapshot seen = backend.read("x:a", "", soon());
  CHECK(seen.text == large.text);
  CHECK_THROWS_WITH_AS(backend.write("x:a", seen, {std::string(1'000'001, 'x')}, soon()),
                       "zk: too many wait or hold: the record of the key would have 1000001 bytes, "
                       "of 1000000 that ZooKeeper takes",
                       Error);
  CHECK(backend.read("x:a", "", soon()).version == seen.version);
}

TEST_CASE("ZooKeeper: a list has what was written before, also from a server that lags behind") {
  if (is_missing<ZooKeeperServers>()) return;
  ZooKeeperServers servers({3, milliseconds(1000), {}});
  const std::size_t leader = servers.leader(), follower = (leader + 1) % servers.size();
  const auto open = [&](std::size_t server) {
    return ZooKeeperBackend({servers.endpoint(server)}, "zk", "", "x:", milliseconds(40'000));
  };
  ZooKeeperBackend reader = open(follower), writer = open(leader);
  const Snapshot none = reader.read("x:none", "", soon());
  constexpr int records = 150;
  servers.stop(follower);
  for (int i = 0; i < records; ++i) {
    const auto written = writer.write("x:k:" + std::to_string(i), none, {"an entry"}, soon());
    REQUIRE(std::holds_alternative<Version>(written));
  }
  servers.cont(follower);
  CHECK(reader.count("x:k:", soon()) == records);
}

}  // namespace
}  // namespace dlock::test
