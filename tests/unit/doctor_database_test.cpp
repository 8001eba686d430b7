#include <doctest/doctest.h>

#include <map>

#include "unit/doctor_support.hpp"

namespace dlock {
namespace {

using namespace std::chrono_literals;
using Said = std::map<std::string, std::string>;

DatabaseFacts reached(bool mysql, Said said) {
  DatabaseFacts facts;
  facts.mysql = mysql;
  facts.connected_in = 3ms;
  facts.round_trip = 300us;
  facts.clock = ClockOffset{100us, 500us};
  facts.here = true;
  facts.settings.values = std::move(said);
  facts.trial = TrialLock{{}, 5ms};
  return facts;
}

/// The facts of a faultless server, except for `changed`.
DatabaseFacts postgres_with(const Said& changed) {
  Said said{{"version", "15.18 (Debian 15.18-0+deb12u1)"},
            {"user", "app"},
            {"read_only", "false"},
            {"table", "public.dlock"},
            {"relpersistence", "p"},
            {"fsync", "on"},
            {"synchronous_standby_names", ""},
            {"Slaves_connected", "0"},
            {"sync", "0"},
            {"Threads_connected", "7"},
            {"max_connections", "100"}};
  for (const auto& [name, value] : changed) said[name] = value;
  return reached(false, said);
}

DatabaseFacts mysql_with(const Said& changed) {
  Said said{{"version", "10.11.14-MariaDB-0+deb12u2"},
            {"user", "app@%"},
            {"read_only", "OFF"},
            {"innodb_read_only", "OFF"},
            {"innodb_flush_log_at_trx_commit", "1"},
            {"log_bin", "OFF"},
            {"sync_binlog", "0"},
            {"wsrep_on", "OFF"},
            {"max_connections", "151"},
            {"Threads_connected", "3"},
            {"Slaves_connected", "0"},
            {"table", "dlock"},
            {"name_key", "PRI"}};
  for (const auto& [name, value] : changed) said[name] = value;
  return reached(true, said);
}

bool says(const DatabaseFacts& facts, const std::string& check, Level level,
          const std::string& part) {
  return is(finding_of(check_database(facts), check), level, part);
}

TEST_CASE("doctor: a healthy database has nothing but ok, and an honest label") {
  for (const DatabaseFacts& facts : {postgres_with({}), mysql_with({})}) {
    for (const Finding& each : check_database(facts)) {
      CAPTURE(each.check);
      CAPTURE(each.text);
      CHECK(each.level == Level::ok);
      CHECK(each.told);
    }
    CHECK(label_of(facts) == "safe through restarts, best effort through failovers");
  }
  CHECK(says(postgres_with({}), "engine", Level::ok, "PostgreSQL 15.18"));
  CHECK(says(mysql_with({}), "engine", Level::ok, "MariaDB 10.11.14"));
  CHECK(says(mysql_with({{"version", "8.0.36"}}), "engine", Level::ok, "MySQL 8.0.36"));
}

TEST_CASE("doctor: a database that may forget what it commits is told so, setting by setting") {
  const auto warns = [](const DatabaseFacts& facts, const std::string& part) {
    CHECK(label_of(facts).starts_with("best effort"));
    return says(facts, "persistence", Level::warning, part);
  };
  CHECK(warns(postgres_with({{"fsync", "off"}}), "fsync = on"));
  CHECK(warns(postgres_with({{"relpersistence", "u"}}), "SET LOGGED"));
  CHECK(warns(mysql_with({{"innodb_flush_log_at_trx_commit", "2"}}), "trx_commit = 1"));
  CHECK(warns(mysql_with({{"log_bin", "ON"}}), "sync_binlog = 1"));
  DatabaseFacts silent = mysql_with({});
  silent.settings.values.erase("innodb_flush_log_at_trx_commit");
  CHECK(label_of(silent).starts_with("best effort"));
}

TEST_CASE("doctor: what a failover of a database may lose is said") {
  const auto replication = [](const DatabaseFacts& facts, Level level, const std::string& part) {
    return says(facts, "replication", level, part);
  };
  const Said replicas{{"Slaves_connected", "2"}};
  for (const DatabaseFacts& facts : {postgres_with(replicas), mysql_with(replicas)}) {
    CHECK(replication(facts, Level::warning, "2 replicas, asynchronous"));
  }
  const Said named{{"synchronous_standby_names", "*"}, {"Slaves_connected", "2"}};
  CHECK(replication(postgres_with(named), Level::error, "no lock can be taken"));
  Said synchronous = named;
  synchronous["sync"] = "1";
  CHECK(replication(postgres_with(synchronous), Level::ok, "keeps all locks"));
  CHECK(label_of(postgres_with(synchronous)).find("synchronous standby") != std::string::npos);
  for (const std::string name : {"master", "source"}) {
    Said semi = replicas;
    semi["Rpl_semi_sync_" + name + "_status"] = "ON";
    CHECK(replication(mysql_with(semi), Level::ok, "semi-synchronous"));
    // Off means that it has fallen back to asynchronous.
    semi["Rpl_semi_sync_" + name + "_status"] = "OFF";
    CHECK(replication(mysql_with(semi), Level::warning, "asynchronous"));
  }
  DatabaseFacts silent = mysql_with({});
  silent.settings.values.erase("Slaves_connected");
  CHECK(!finding_of(check_database(silent), "replication").told);
  const Said group{{"group_replication_group_name", "5e1f"}};
  CHECK(replication(mysql_with(group), Level::warning, "name one node"));
  Said one_primary = group;
  one_primary["group_replication_single_primary_mode"] = "ON";
  CHECK(replication(mysql_with(one_primary), Level::ok, "no replica"));
  const DatabaseFacts galera = mysql_with({{"wsrep_on", "ON"}, {"wsrep_cluster_size", "3"}});
  CHECK(replication(galera, Level::warning, "name one node"));
  CHECK(label_of(galera).starts_with("best effort"));
}

TEST_CASE("doctor: a standby takes no locks, and nothing else is said of it") {
  const DatabaseFacts standby = postgres_with({{"read_only", "true"}});
  CHECK(says(standby, "role", Level::error, "a standby: it takes no locks -> name the primary"));
  CHECK(check_database(standby).back().check == "role");
  for (const std::string setting : {"read_only", "innodb_read_only"}) {
    CHECK(says(mysql_with({{setting, "ON"}}), "role", Level::error, "read-only"));
  }
}

TEST_CASE("doctor: a pooler, few connections and plain text are warned of") {
  DatabaseFacts pooled = postgres_with({});
  pooled.pooled = true;
  CHECK(says(pooled, "pooler", Level::warning, "waiters poll"));
  pooled.settings.values["Ssl_version"] = "TLSv1.3";
  CHECK(!finding_of(check_database(pooled), "tls").told);
  CHECK(says(postgres_with({{"Threads_connected", "95"}}), "connections", Level::warning,
             "95 of 100"));
  CHECK(says(mysql_with({{"Threads_connected", "150"}}), "connections", Level::warning,
             "waiters keep none"));
  DatabaseFacts afar = postgres_with({});
  afar.here = false;
  CHECK(says(afar, "tls", Level::warning, "sslmode=verify-full"));
  afar.settings.values["Ssl_version"] = "TLSv1.3";
  CHECK(says(afar, "tls", Level::ok, "TLSv1.3"));
}

TEST_CASE(
    "doctor: a table without a key, a lock that failed and a server that is away are errors") {
  CHECK(says(mysql_with({{"name_key", ""}}), "table", Level::error, "ADD PRIMARY KEY"));
  CHECK(says(mysql_with({{"name_key", "UNI"}}), "table", Level::ok, "dlock"));
  DatabaseFacts facts = postgres_with({});
  facts.trial->trouble.text = "a free key was refused";
  CHECK(says(facts, "lock", Level::error, "a free key was refused"));
  facts = postgres_with({});
  facts.unreachable.text = "the connection was closed";
  CHECK(says(facts, "reach", Level::error, "see the server's log"));
  facts.round_trip = {};
  facts.unreachable.text = "connection refused";
  CHECK(says(facts, "reach", Level::error, "is it running"));
  CHECK(check_database(facts).size() == 1);
}

}  // namespace
}  // namespace dlock
