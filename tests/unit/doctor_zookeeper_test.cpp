#include <doctest/doctest.h>

#include "unit/doctor_support.hpp"

namespace dlock {
namespace {

using namespace std::chrono_literals;

const std::string not_allowed = "srvr is not executed because it is not in the whitelist.";
const std::string not_serving = "This ZooKeeper instance is not currently serving requests";

/// Servers z1, z2, ... with these modes, or with these answers instead of one.
ZooKeeperFacts servers(const std::vector<std::string>& said) {
  ZooKeeperFacts facts;
  for (const std::string& each : said) {
    ZooKeeperServerStatus server{"z" + std::to_string(facts.servers.size() + 1) + ":2181"};
    server.answered_in = 1ms;
    if (each.find(' ') != std::string::npos) {
      server.refusal = each;
    } else {
      server.version = "3.8.0";
      server.mode = each;
    }
    facts.servers.push_back(server);
  }
  facts.session = facts.session_asked = 20s;
  facts.round_trip = 1ms;
  facts.here = true;
  facts.trial.emplace();
  return facts;
}

Finding found(const ZooKeeperFacts& facts, const std::string& check) {
  return finding_of(check_zookeeper(facts), check);
}

TEST_CASE("doctor: a ZooKeeper is worth what the modes of its servers tell") {
  const ZooKeeperFacts alone = servers({"standalone"});
  CHECK(found(alone, "quorum").text == "one server, whose failure nothing survives");
  CHECK(found(alone, "label").text == "as safe as its disk");
  const ZooKeeperFacts three = servers({"follower", "leader", "follower"});
  CHECK(found(three, "quorum").text == "z1:2181 follower, z2:2181 leader, z3:2181 follower");
  CHECK(found(three, "quorum").level == Level::ok);
  CHECK(found(three, "label").text == "safe while a majority lives");
}

TEST_CASE("doctor: a ZooKeeper server that has lost the others is warned of") {
  const Finding quorum = found(servers({"leader", not_serving, "follower"}), "quorum");
  CHECK(quorum.level == Level::warning);
  CHECK(quorum.text == "z1:2181 leader, z2:2181 does not serve, z3:2181 follower");
}

TEST_CASE("doctor: a ZooKeeper server that may not tell its mode is not said to be down") {
  const ZooKeeperFacts silent = servers({not_allowed, not_allowed});
  const Finding quorum = found(silent, "quorum");
  CHECK(quorum.level == Level::ok);
  CHECK_FALSE(quorum.told);
  CHECK(quorum.text == "not told (srvr: " + not_allowed + ")");
  CHECK_FALSE(found(silent, "engine").told);
  CHECK(found(silent, "label").text ==
        "best effort: whether a majority keeps the locks is not known");
  const ZooKeeperFacts one_tells = servers({not_allowed, "follower"});
  CHECK(found(one_tells, "quorum").text == "z1:2181 does not tell its mode, z2:2181 follower");
  CHECK(found(one_tells, "label").text == "safe while a majority lives");
}

TEST_CASE("doctor: a ZooKeeper of which no server is reached is told of that alone") {
  ZooKeeperFacts away = servers({"leader"});
  away.servers.front().unreachable = {"z1:2181: connection refused", Cause::none};
  const Findings findings = check_zookeeper(away);
  REQUIRE(findings.size() == 1);
  CHECK(findings.front().level == Level::error);
  CHECK(findings.front().text == "z1:2181: connection refused");
}

TEST_CASE("doctor: a ZooKeeper that is too old or gives no session is an error") {
  ZooKeeperFacts facts = servers({"leader", "follower"});
  facts.servers[1].version = "3.4.14";
  CHECK(found(facts, "engine").level == Level::error);
  CHECK(found(facts, "engine").text == "ZooKeeper 3.4.14, 3.8.0: dlock needs 3.5 or later");
  facts.trouble = "no session";
  CHECK(found(facts, "session").level == Level::error);
  CHECK(found(facts, "lock").text == "no such check");
  CHECK(found(facts, "label").text == "no such check");
}

TEST_CASE("doctor: a ZooKeeper session that outlives a killed holder for longer is warned of") {
  ZooKeeperFacts facts = servers({"leader"});
  facts.session = 40s;
  const Finding session = found(facts, "session");
  CHECK(session.level == Level::warning);
  CHECK(session.text.ends_with("a lock whose holder was killed is free after that, not after 20s"));
  facts.session = 10s;
  CHECK(found(facts, "session").level == Level::ok);
  facts.round_trip = 1100ms;
  CHECK(found(facts, "session").level == Level::warning);
  CHECK(found(facts, "session").text.ends_with("slow for a ttl of 30s"));
}

TEST_CASE("doctor: the clock of a ZooKeeper's leader is told, and on which side it is") {
  ZooKeeperFacts facts = servers({"leader"});
  facts.ahead = 999ms;
  CHECK(found(facts, "clock").level == Level::ok);
  facts.ahead = 90s;
  CHECK(found(facts, "clock").level == Level::warning);
  CHECK(found(facts, "clock").text.starts_with("90 s ahead of this host's: leases go by"));
  facts.ahead = -90s;
  CHECK(found(facts, "clock").text.starts_with("90 s behind this host's"));
}

TEST_CASE("doctor: a ZooKeeper on the network is warned of, and a lock that failed is an error") {
  ZooKeeperFacts facts = servers({"leader"});
  CHECK(found(facts, "lock").level == Level::ok);
  facts.here = false;
  facts.user = "dlock";
  facts.trial->trouble = {"no rights", Cause::acl};
  CHECK(found(facts, "tls").level == Level::warning);
  CHECK(found(facts, "user").text == "dlock, whose nodes are closed to others");
  CHECK(found(facts, "lock").level == Level::error);
  CHECK(found(facts, "lock").text == "cannot be held: no rights");
  facts.trial.reset();
  CHECK(found(facts, "lock").text == "no such check");
}

}  // namespace
}  // namespace dlock
