#include <doctest/doctest.h>
#include <linux/magic.h>

#include "unit/doctor_support.hpp"

namespace dlock {
namespace {

using namespace std::chrono_literals;
using Fields = std::map<std::string, std::string>;

/// The facts of a faultless server.
ServerFacts healthy() {
  ServerFacts facts;
  facts.endpoint.host = "127.0.0.1";
  facts.connected_in = 1ms;
  facts.round_trip = 200us;
  facts.info.values = {{"redis_version", "7.0.15"},
                       {"redis_mode", "standalone"},
                       {"role", "master"},
                       {"maxmemory", "0"},
                       {"connected_slaves", "0"}};
  facts.config.values = {
      {"appendonly", "yes"}, {"appendfsync", "always"},          {"save", ""},
      {"maxmemory", "0"},    {"maxmemory-policy", "noeviction"}, {"min-replicas-to-write", "0"}};
  facts.trial = TrialLock{{}, 90us};
  facts.clock = ClockOffset{100us, 500us};
  return facts;
}

ServerFacts with(const Fields& info, const Fields& config) {
  ServerFacts facts = healthy();
  for (const auto& [name, value] : info) facts.info.values[name] = value;
  for (const auto& [name, value] : config) facts.config.values[name] = value;
  return facts;
}

bool server_says(const ServerFacts& facts, const std::string& check, Level level,
                 const std::string& part, const DoctorOptions& options = {}) {
  ServerFacts examined = facts;
  examined.options = options;
  return is(finding_of(check_server(examined), check), level, part);
}

TEST_CASE("doctor: a healthy server has nothing but ok") {
  for (const Finding& each : check_server(healthy())) {
    CAPTURE(each.check);
    CHECK(is(each, Level::ok, ""));
  }
  CHECK(server_says(healthy(), "label", Level::ok, "best effort"));
}

TEST_CASE("doctor: what cannot be reached is the one thing said") {
  ServerFacts facts;
  facts.unreachable = {"cannot connect: Connection refused"};
  CHECK(check_server(facts).size() == 1);
  CHECK(server_says(facts, "reach", Level::error, "firewall"));
  facts.unreachable = {"password is wrong (it said: WRONGPASS)", Cause::password_wrong};
  CHECK(server_says(facts, "reach", Level::error, "check user and password"));
  facts = healthy();
  facts.round_trip = 50ms;
  CHECK(server_says(facts, "reach", Level::ok, "50 ms"));
  CHECK(server_says(facts, "reach", Level::warning, "slow for a ttl of 1s", {"dlock:", 1s, 0}));
}

TEST_CASE("doctor: engines are told apart, and versions too old refused") {
  CHECK(server_says(healthy(), "engine", Level::ok, "Redis 7.0.15"));
  CHECK(server_says(with({{"redis_version", "6.2.0"}}, {}), "engine", Level::ok, "6.2.0"));
  CHECK(server_says(with({{"redis_version", "10.0.1"}}, {}), "engine", Level::ok, "10.0.1"));
  CHECK(server_says(with({{"redis_version", "6.0.16"}}, {}), "engine", Level::error,
                    "dlock needs 6.2 or later"));
  CHECK(server_says(with({{"redis_version", "5.0.4"}}, {}), "engine", Level::error, "upgrade"));
  CHECK(server_says(with({{"valkey_version", "8.1.1"}, {"server_name", "valkey"}}, {}), "engine",
                    Level::ok, "Valkey 8.1.1"));
  CHECK(server_says(with({{"mvcc_depth", "0"}, {"redis_version", "6.3.4"}}, {}), "engine",
                    Level::warning, "KeyDB 6.3.4"));
  CHECK(server_says(with({{"mvcc_depth", "0"}, {"role", "active-replica"}}, {}), "role",
                    Level::error, "a replica"));
  CHECK(server_says(with({{"dragonfly_version", "df-v1.40.1"}}, {}), "engine", Level::warning,
                    "Dragonfly df-v1.40.1"));
  CHECK(server_says(with({{"garnet_version", "1.0.83"}}, {}), "engine", Level::warning,
                    "Garnet 1.0.83"));
  ServerFacts told_by_hello = healthy();
  told_by_hello.info = {{}, "NOPERM"};
  told_by_hello.hello.values = {{"server", "redis"}, {"version", "7.2.4"}};
  CHECK(server_says(told_by_hello, "engine", Level::ok, "Redis 7.2.4"));
}

TEST_CASE("doctor: the wrong kind of server is named with the right URL, and ends the look") {
  ServerFacts replica =
      with({{"role", "slave"}, {"master_host", "10.0.0.1"}, {"master_port", "6380"}}, {});
  CHECK(check_server(replica).back().check == "role");
  CHECK(server_says(replica, "role", Level::error, "--server redis://10.0.0.1:6380"));
  ServerFacts by_role = healthy();
  by_role.info = {{}, "NOPERM"};
  by_role.hello.values = {{"role", "replica"}};
  CHECK(server_says(by_role, "role", Level::error, "a replica: it takes no locks -> name its"));
  CHECK(server_says(with({{"redis_mode", "sentinel"}}, {}), "role", Level::error,
                    "redis+sentinel://127.0.0.1:6379/NAME"));
  CHECK(server_says(with({{"redis_mode", "cluster"}}, {}), "role", Level::error,
                    "redis+cluster://127.0.0.1:6379"));
  DoctorOptions cluster;
  cluster.topology = Topology::cluster;
  CHECK(server_says(with({{"redis_mode", "cluster"}}, {}), "role", Level::ok, "master", cluster));
}

TEST_CASE("doctor: a user without a password is warned of where others can reach the port") {
  ServerFacts facts = healthy();
  CHECK(server_says(facts, "user", Level::ok, "default, without a password"));
  facts.endpoint.host = "db1";
  CHECK(server_says(facts, "user", Level::warning, "--acl"));
  facts.endpoint.password = "secret";
  facts.endpoint.user = "jobs";
  CHECK(server_says(facts, "user", Level::ok, "jobs, by password"));
}

TEST_CASE("doctor: TLS and certificates that end soon, or a password in plain text") {
  ServerFacts facts = healthy();
  CHECK(server_says(facts, "tls", Level::ok, "none, on this host"));
  facts.endpoint.host = "db1";
  CHECK(server_says(facts, "tls", Level::warning, "rediss://"));
  facts.endpoint.tls = TlsSettings{};
  facts.seen_at = WallTime{std::chrono::sys_days{std::chrono::January / 1 / 2027}};
  facts.tls = TlsFacts{"TLSv1.3", facts.seen_at + 24h * 20};
  CHECK(server_says(facts, "tls", Level::ok, "TLSv1.3, certificate valid until 2027-01-21"));
  facts.tls->expires = facts.seen_at + 24h * 13 + 23h;
  CHECK(server_says(facts, "tls", Level::warning, "a certificate expires in 13 days"));
  facts.tls->expires = facts.seen_at - 1h;
  CHECK(server_says(facts, "tls", Level::warning, "has expired"));
}

TEST_CASE("doctor: commands that the user may not use are named, and the cause has its advice") {
  ServerFacts facts = healthy();
  facts.missing = {"zrank", "publish"};
  CHECK(server_says(facts, "rights", Level::error, "zrank publish -> grant what is missing"));
  facts.trial->trouble = {"the server is out of memory (it said: OOM)", Cause::out_of_memory};
  CHECK(server_says(facts, "lock", Level::error, "-> raise maxmemory"));
}

TEST_CASE("doctor: a policy that throws locks out is an error where there is a limit") {
  for (const char* policy : {"allkeys-lru", "volatile-ttl", "volatile-lru", "allkeys-random"}) {
    const Fields limited{{"maxmemory-policy", policy}, {"maxmemory", "1000000"}};
    CHECK(server_says(with({}, limited), "eviction", Level::error, "noeviction"));
    const Fields boundless{{"maxmemory-policy", policy}, {"maxmemory", "0"}};
    CHECK(server_says(with({}, boundless), "eviction", Level::ok, policy));
  }
  CHECK(server_says(with({}, {{"maxmemory", "1000000"}}), "eviction", Level::ok, "noeviction"));
  ServerFacts managed = with({{"maxmemory_policy", "volatile-lru"}, {"maxmemory", "9"}}, {});
  managed.config = {{}, "unknown command"};
  CHECK(server_says(managed, "eviction", Level::error, "volatile-lru"));
}

TEST_CASE("doctor: persistence says what a crash forgets") {
  CHECK(server_says(healthy(), "persistence", Level::ok, "outlive a crash"));
  CHECK(server_says(with({}, {{"appendfsync", "everysec"}}), "persistence", Level::ok,
                    "last second"));
  CHECK(server_says(with({}, {{"appendfsync", "no"}}), "persistence", Level::warning, "everysec"));
  CHECK(server_says(with({}, {{"appendonly", "no"}, {"save", "3600 1"}}), "persistence",
                    Level::warning, "since the last one"));
  CHECK(server_says(with({}, {{"appendonly", "no"}}), "persistence", Level::warning,
                    "a restart forgets held locks"));
  CHECK(server_says(with({{"aof_last_write_status", "err"}}, {}), "persistence", Level::error,
                    "disk"));
  ServerFacts managed = with({{"aof_enabled", "1"}}, {});
  managed.config = {{}, "unknown command"};
  CHECK(server_says(managed, "persistence", Level::ok, "not told (CONFIG: unknown command)"));
}

TEST_CASE("doctor: replicas are counted, those out of step apart") {
  const Fields two{{"connected_slaves", "2"},
                   {"slave0", "ip=10.0.0.2,port=6379,state=online,offset=42,lag=1"},
                   {"slave1", "ip=10.0.0.3,port=6379,state=online,offset=42,lag=0"}};
  CHECK(server_says(with(two, {}), "replication", Level::ok, "2 replicas"));
  CHECK(server_says(with(two, {}), "label", Level::ok, "asynchronous"));
  Fields lagging = two;
  lagging["slave1"] = "ip=10.0.0.3,port=6379,state=wait_bgsave,offset=0,lag=0";
  CHECK(server_says(with(lagging, {}), "replication", Level::warning, "1 replica of 2"));
  DoctorOptions sentinel;
  sentinel.topology = Topology::sentinel;
  CHECK(server_says(with(two, {}), "replication", Level::warning, "min-replicas-to-write 1",
                    sentinel));
  CHECK(server_says(with(two, {{"min-replicas-to-write", "1"}}), "replication", Level::ok,
                    "2 replicas", sentinel));
  CHECK(server_says(healthy(), "replication", Level::warning, "nothing to fail over to", sentinel));
  sentinel.topology = Topology::cluster;
  ServerFacts node = with({{"redis_mode", "cluster"}}, {});
  CHECK(server_says(node, "replication", Level::warning, "no replica", sentinel));
}

TEST_CASE("doctor: a clock that is more than a second away is warned of") {
  ServerFacts facts = healthy();
  CHECK(server_says(facts, "clock", Level::ok, "of this host's"));
  facts.clock = ClockOffset{1500ms, 600ms};
  CHECK(server_says(facts, "clock", Level::ok, "of this host's"));
  facts.clock = ClockOffset{2h, 1ms};
  CHECK(server_says(facts, "clock", Level::warning, "7200 s ahead of this host's"));
  facts.clock = ClockOffset{-2h, 1ms};
  CHECK(server_says(facts, "clock", Level::warning, "7200 s behind this host's"));
  facts.clock.reset();
  CHECK(server_says(facts, "clock", Level::ok, "not told"));
}

TEST_CASE("doctor: what a server does not tell is no fault") {
  ServerFacts facts = healthy();
  facts.info = {{}, "NOPERM"};
  facts.config = {{}, "unknown command"};
  facts.hello = {{}, "unknown command"};
  for (const Finding& each : check_server(facts)) CHECK(is(each, Level::ok, ""));
  for (const char* check : {"engine", "eviction", "persistence"}) {
    CHECK(server_says(facts, check, Level::ok, "not told (INFO: NOPERM, CONFIG: unknown command)"));
  }
}

SentinelFacts sentinel(int port) {
  SentinelFacts facts;
  facts.endpoint.host = "10.0.0.9";
  facts.endpoint.port = port;
  facts.host = "10.0.0.1";
  facts.port = "6379";
  facts.master.values = {{"flags", "master"},
                         {"num-other-sentinels", "2"},
                         {"quorum", "2"},
                         {"down-after-milliseconds", "5000"}};
  return facts;
}

TEST_CASE("doctor: sentinels are heard each, and against each other") {
  const std::vector<SentinelFacts> three{sentinel(1), sentinel(2), sentinel(3)};
  for (const Finding& each : check_sentinels(three, {})) CHECK(is(each, Level::ok, ""));
  const auto says = [&](const SentinelFacts& odd, const char* check, Level level,
                        const std::string& part, const DoctorOptions& options = {}) {
    return is(finding_of(check_sentinels({odd, three[1]}, options), check), level, part);
  };
  SentinelFacts odd = sentinel(1);
  odd.unreachable = {"cannot connect: Connection refused"};
  CHECK(says(odd, "sentinel", Level::warning, "10.0.0.9:1: cannot connect"));
  CHECK(is(check_sentinels({odd}, {}).front(), Level::error, "cannot connect"));
  odd = sentinel(1);
  odd.host.clear();
  CHECK(says(odd, "sentinel", Level::error, "knows no master of this name"));
  odd = sentinel(1);
  odd.quorum_fault = "NOQUORUM 1 usable Sentinels";
  CHECK(says(odd, "sentinel", Level::error, "NOQUORUM"));
  odd = sentinel(1);
  odd.host = "10.0.0.2";
  CHECK(says(odd, "quorum", Level::error, "different masters: 10.0.0.1:6379, 10.0.0.2:6379"));
  odd = sentinel(1);
  odd.master.values["num-other-sentinels"] = "1";
  CHECK(says(odd, "quorum", Level::warning, "three or more"));
  CHECK(
      says(sentinel(1), "failover", Level::warning, "too late for a ttl of 6s", {"dlock:", 6s, 0}));
  odd.master = {{}, "NOPERM"};
  CHECK(says(odd, "failover", Level::ok, "not told (SENTINEL MASTER: NOPERM)"));
}

TEST_CASE("doctor: a Cluster serves all slots, or is not one to lock with") {
  ClusterFacts facts;
  facts.info.values = {{"cluster_state", "ok"}, {"cluster_known_nodes", "6"}};
  facts.masters.resize(3);
  CHECK(is(check_cluster(facts).front(), Level::ok, "3 masters of 6 nodes, all slots served"));
  ClusterFacts odd = facts;
  odd.silent_seeds = {{"db1:6379", {"cannot connect: Connection refused"}}};
  CHECK(is(check_cluster(odd).front(), Level::warning, "db1:6379: cannot connect"));
  CHECK(is(check_cluster(odd).back(), Level::ok, "state ok"));
  odd = facts;
  odd.unserved = 2;
  CHECK(is(check_cluster(odd).front(), Level::error, "2 slots with nobody"));
  odd = facts;
  odd.info.values["cluster_state"] = "fail";
  CHECK(is(check_cluster(odd).front(), Level::error, "state fail"));
  odd = facts;
  odd.masters.clear();
  CHECK(is(check_cluster(odd).front(), Level::error, "no node has a slot"));
  odd.fault = {"ERR This instance has cluster support disabled", Cause::other_reply};
  CHECK(is(check_cluster(odd).front(), Level::error, "cluster support disabled"));
}

TEST_CASE("doctor: what all masters say is said once") {
  const Finding same{Level::ok, "role", "master", ""};
  const auto memory = [](const char* text) { return Finding{Level::ok, "memory", text, "", true}; };
  const Findings all = merged(
      {{"a", {same, memory("1M")}}, {"b", {same, memory("2M")}}, {"c", {same, memory("1M")}}});
  REQUIRE(all.size() == 3);
  CHECK(all[0].text == "all 3: master");
  CHECK(all[1].text == "a, c: 1M");
  CHECK(all[2].text == "b: 2M");
  CHECK(merged({{"a", {same}}}).front().text == "a: master");
}

TEST_CASE("doctor: a directory that other hosts may share, or not all jobs, is warned of") {
  LocalFacts facts;
  facts.directory = "/var/lock/dlock";
  facts.file_system = EXT4_SUPER_MAGIC;
  facts.trial.emplace();
  for (const Finding& each : check_local(facts)) CHECK(is(each, Level::ok, ""));
  facts.file_system = NFS_SUPER_MAGIC;
  CHECK(is(finding_of(check_local(facts), "file-system"), Level::warning, "nfs"));
  facts.trial->trouble = {"disk full"};
  CHECK(is(finding_of(check_local(facts), "lock"), Level::error, "disk full"));
  for (const char* place : {"/tmp", "/tmp/locks", "/var/tmp/locks", "/tmpfiles"}) {
    facts.directory = place;
    const bool warned = facts.directory != "/tmpfiles";
    CHECK(is(finding_of(check_local(facts), "directory"), warned ? Level::warning : Level::ok,
             warned ? "PrivateTmp" : ""));
  }
  facts.trouble = "no such directory";
  CHECK(check_local(facts).size() == 1);
  CHECK(is(check_local(facts).front(), Level::error, "no such directory"));
}

}  // namespace
}  // namespace dlock
