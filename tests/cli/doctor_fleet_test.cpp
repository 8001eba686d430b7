#include <doctest/doctest.h>
#include <sys/stat.h>

#include <algorithm>

#include "cli/doctor_report.hpp"
#include "support/cluster.hpp"
#include "support/fake_server.hpp"
#include "support/files.hpp"
#include "support/fleet.hpp"
#include "support/resp.hpp"
#include "support/sentinels.hpp"

namespace dlock::test {
namespace {

SentinelOptions sound_fleet() {
  SentinelOptions options{
      .replicas = 1,
      .server_config = {"appendonly yes", "appendfsync always", "min-replicas-to-write 1"}};
  // With this, they do not declare a master dead that is stalled by a busy machine.
  options.sentinel_config = {"sentinel down-after-milliseconds locks 15000"};
  return options;
}

TEST_CASE("doctor: sentinels and their master, sound and not") {
  Sentinels fleet(sound_fleet());
  const Report sound = doctor(fleet.url(), {"--replicas", "1"});
  CHECK(sound.result.exit_code == 0);
  CHECK(sound.result.out.starts_with(fleet.url() + "\n"));
  for (std::size_t i = 0; i < 3; ++i) {
    const int port = fleet.sentinel(i).port();
    CHECK(sound.says("sentinel", "ok",
                     "127.0.0.1:" + std::to_string(port) + ": names 127.0.0.1:" +
                         std::to_string(fleet.master().port()) + ", quorum 2"));
  }
  CHECK(sound.says("quorum", "ok", "3 sentinels in all, and they agree"));
  CHECK(sound.says("failover", "ok", "15s of silence"));
  CHECK(sound.says("replication", "ok", "1 replica"));
  CHECK(sound.says("label", "ok", "best effort: replication is asynchronous"));
  CHECK(fleet.master().command({"DBSIZE"}).number == 0);
  CHECK(doctor(fleet.url(), {"-t", "1s"}).says("failover", "warning", "or a longer -t"));

  const std::string one = "127.0.0.1:" + std::to_string(fleet.sentinel(0).port());
  CHECK(doctor("redis+sentinel://" + one + "/others").says("sentinel", "error", "no master of"));
  CHECK(doctor("redis://" + one).says("role", "error", "redis+sentinel://" + one + "/NAME"));

  // The fewest rights on both kinds of server.
  const TempDir dir;
  write_file(dir / "password", "PASSWORD");
  REQUIRE(chmod((dir / "password").c_str(), 0600) == 0);
  const std::string url =
      "redis+sentinel://dlock@" + fleet.url().substr(std::string("redis+sentinel://").size());
  const Words login{"--sentinel-user", "dlock", "--sentinel-password-file", dir / "password"};
  Words with_acl = login;
  with_acl.emplace_back("--acl");
  const std::string lines = doctor(url, with_acl, "PASSWORD").result.out;
  const auto end = lines.find('\n');
  obey(fleet.master(), lines.substr(0, end));
  for (std::size_t i = 0; i < 3; ++i) obey(fleet.sentinel(i), lines.substr(end + 1));
  const Report least = doctor(url, login, "PASSWORD");
  CHECK(least.result.exit_code == 0);
  CHECK(least.says("failover", "ok", "not told (SENTINEL MASTER: NOPERM)"));
  CHECK(least.says("lock", "ok", "handed over"));
  const ProcessOptions options{.env = {{"DLOCK_SERVER", url},
                                       {"DLOCK_PASSWORD", "PASSWORD"},
                                       {"DLOCK_SENTINEL_USER", "dlock"},
                                       {"DLOCK_SENTINEL_PASSWORD_FILE", dir / "password"}}};
  check_quiet(dlock({"run", "-k", "a", "--", "true"}, options));

  fleet.master().command({"CONFIG", "SET", "min-replicas-to-write", "0"});
  fleet.sentinel(0).kill_hard();
  const Report worse = doctor(fleet.url());
  CHECK(worse.result.exit_code == 1);
  CHECK(worse.says("sentinel", "warning", one + ": cannot connect"));
  CHECK(worse.says("replication", "warning", "-> CONFIG SET min-replicas-to-write 1"));
  fleet.sentinel(1).kill_hard();
  fleet.sentinel(2).kill_hard();
  const Report none = doctor(fleet.url());
  CHECK(none.result.exit_code == 2);
  CHECK(none.says("verdict", "error", "3 errors"));
}

TEST_CASE("doctor: a sentinel that names what cannot be, and what is no sentinel") {
  FakeServer sentinel(
      [](const std::vector<std::string>& words) {
        const bool address = words.size() > 1 && words[1] == "get-master-addr-by-name";
        return say(address ? request({"127.0.0.1", "0"}) : "+OK\r\n");
      },
      true);
  const auto at = [](int port) {
    return "redis+sentinel://127.0.0.1:" + std::to_string(port) + "/locks";
  };
  const Report impossible = doctor(at(sentinel.address().port));
  CHECK(impossible.result.exit_code == 2);
  CHECK(impossible.says("sentinel", "error", "it knows no master of this name"));
  const RedisServer redis({.tcp = true});
  const Report none = doctor(at(redis.port()));
  CHECK(none.result.exit_code == 2);
  CHECK(none.says("sentinel", "error", "it is not a sentinel"));
}

TEST_CASE("doctor: a Cluster and each of its masters, sound and not") {
  const Cluster cluster;
  const auto on_all = [&](const Words& words) {
    for (std::size_t i = 0; i < cluster.size(); ++i) {
      REQUIRE(cluster.node(i).command(words).kind != Reply::Kind::error);
    }
  };
  on_all({"CONFIG", "SET", "appendfsync", "always"});
  on_all({"CONFIG", "SET", "appendonly", "yes"});
  const auto address = [&](std::size_t i) {
    return "127.0.0.1:" + std::to_string(cluster.node(i).port());
  };
  const std::string seed = "redis+cluster://" + address(1);
  const Report sound = doctor(seed);
  CHECK(sound.result.exit_code == 1);
  CHECK(sound.says("cluster", "ok", "state ok, 3 masters of 3 nodes, all slots served"));
  CHECK(sound.says("engine", "ok", "all 3: Redis "));
  CHECK(sound.says("role", "ok", "all 3: master"));
  for (std::size_t i = 0; i < 3; ++i) CHECK(sound.says("lock", "ok", address(i)));
  CHECK(sound.says("replication", "warning", "all 3: no replica"));
  CHECK(sound.says("failover", "ok", "all 3: begins after 15s"));
  CHECK(sound.says("label", "ok", "all 3: best effort"));
  CHECK(sound.says("verdict", "warning", "1 warning"));
  for (std::size_t i = 0; i < 3; ++i) CHECK(cluster.node(i).command({"DBSIZE"}).number == 0);
  CHECK(doctor("redis://" + address(0)).says("role", "error", "redis+cluster://" + address(0)));

  const std::string url = "redis+cluster://dlock@" + address(0);
  const std::string line = doctor(url, {"--acl"}, "PASSWORD").result.out;
  for (std::size_t i = 0; i < 3; ++i) obey(cluster.node(i), line);
  const Report least = doctor(url, {}, "PASSWORD");
  CHECK(least.result.exit_code == 0);
  CHECK(least.says("rights", "ok", "all 3: all that dlock needs"));
  const ProcessOptions options{.env = {{"DLOCK_SERVER", url}, {"DLOCK_PASSWORD", "PASSWORD"}}};
  CHECK(dlock({"run", "-k", "a", "-k", "b", "-k", "c", "--", "true"}, options).exit_code == 0);
  CHECK(dlock({"inspect"}, options).exit_code == 0);

  cluster.node(2).command({"CONFIG", "SET", "maxmemory", "100mb"});
  cluster.node(2).command({"CONFIG", "SET", "maxmemory-policy", "volatile-ttl"});
  const Report odd = doctor(seed, {"-t", "2s"});
  CHECK(odd.says("eviction", "error", address(2) + ": volatile-ttl"));
  CHECK(odd.says("eviction", "ok", address(0) + ", " + address(1) + ": none"));
  CHECK(odd.says("failover", "warning", "cluster-node-timeout 5000"));

  cluster.begin_move(0, 0, 1);
  CHECK(doctor(seed).says("cluster", "error", "slot 0 is on its way to another master"));
  const int slot = Cluster::slot_of(Cluster::key_of(1));
  REQUIRE(cluster.node(1).command({"CLUSTER", "DELSLOTS", std::to_string(slot)}).text == "OK");
  CHECK(doctor(seed).says("cluster", "error", "state fail, 3 masters, 1 slot with nobody"));
  cluster.node(0).kill_hard();
  const Report broken = doctor(seed + "," + address(0));
  CHECK(broken.result.exit_code == 2);
  CHECK(broken.says("cluster", "warning", address(0) + ": cannot connect"));
  CHECK(broken.says("reach", "error", address(0) + ": cannot connect"));
  CHECK(doctor("redis+cluster://" + address(0)).says("cluster", "error", "cannot connect"));
  const RedisServer alone([] {
    RedisOptions on_its_own;
    on_its_own.tcp = true;
    return on_its_own;
  }());
  const std::string single = "redis+cluster://127.0.0.1:" + std::to_string(alone.port());
  CHECK(doctor(single).says("cluster", "error", "--server redis://HOST"));
}

TEST_CASE("doctor: of several servers, which has no vote now and for how long no lock is had") {
  const Fleet fleet({.servers = 3});
  const auto urls = fleet.urls();
  const auto doctor_of_all = [&] {
    return doctor(urls[0], {"--server", urls[1], "--server", urls[2]});
  };
  const Report sound = doctor_of_all();
  CHECK(sound.says("vote", "ok", "all 3: has one"));
  CHECK(sound.says("majority", "ok", "3 of 3 servers reached"));
  fleet.server(0).command({"FLUSHALL"});
  const Report one_without = doctor_of_all();
  CHECK(one_without.result.exit_code == 1);
  CHECK(one_without.says("vote", "warning", "none for another "));
  CHECK(one_without.says("majority", "ok", "3 of 3 servers reached"));
  fleet.server(1).command({"FLUSHALL"});
  const Report no_majority = doctor_of_all();
  CHECK(no_majority.result.exit_code == 2);
  CHECK(no_majority.says("majority", "error", "no lock can be taken for another "));
}

}  // namespace
}  // namespace dlock::test
