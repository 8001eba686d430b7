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
            {"standby", "f"},
            {"table", "p"},
            {"fsync", "on"},
            {"synchronous_standby_names", ""},
            {"standbys", "0"},
            {"synchronous_standbys", "0"},
            {"connections", "7"},
            {"max_connections", "100"},
            {"idle_session_timeout", "0"}};
  for (const auto& [name, value] : changed) said[name] = value;
  return reached(false, said);
}

DatabaseFacts mysql_with(const Said& changed) {
  Said said{{"version", "10.11.14-MariaDB-0+deb12u2"},
            {"user", "app@%"},
            {"read_only", "OFF"},
            {"innodb_read_only", "OFF"},
            {"innodb_flush_log_at_trx_commit", "1"},
            {"innodb_doublewrite", "ON"},
            {"log_bin", "OFF"},
            {"sync_binlog", "0"},
            {"wsrep_on", "OFF"},
            {"wait_timeout", "28800"},
            {"max_connections", "151"},
            {"Threads_connected", "3"},
            {"Slaves_connected", "0"},
            {"table", "InnoDB"}};
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
  CHECK(warns(postgres_with({{"table", "u"}}), "SET LOGGED"));
  CHECK(warns(mysql_with({{"innodb_flush_log_at_trx_commit", "2"}}), "the last second"));
  CHECK(warns(mysql_with({{"innodb_flush_method", "nosync"}}), "nosync"));
  CHECK(warns(mysql_with({{"innodb_doublewrite", "OFF"}}), "innodb_doublewrite = ON"));
  CHECK(warns(mysql_with({{"log_bin", "ON"}}), "sync_binlog = 1"));
  DatabaseFacts silent = mysql_with({});
  silent.settings.values.erase("innodb_flush_log_at_trx_commit");
  CHECK(label_of(silent).starts_with("best effort"));
}

TEST_CASE("doctor: what a failover of a database may lose is said") {
  const auto replication = [](const DatabaseFacts& facts, Level level, const std::string& part) {
    return says(facts, "replication", level, part);
  };
  CHECK(
      replication(postgres_with({{"standbys", "2"}}), Level::warning, "may lose the last commits"));
  const Said named{{"synchronous_standby_names", "*"}, {"standbys", "2"}};
  CHECK(replication(postgres_with(named), Level::error, "no lock can be taken"));
  Said synchronous = named;
  synchronous["synchronous_standbys"] = "1";
  CHECK(replication(postgres_with(synchronous), Level::ok, "keeps all locks"));
  CHECK(label_of(postgres_with(synchronous)).find("synchronous standby") != std::string::npos);
  CHECK(replication(mysql_with({{"Slaves_connected", "1"}}), Level::warning,
                    "may lose the last commits"));
  for (const std::string name : {"master", "source"}) {
    Said semi{{"rpl_semi_sync_" + name + "_enabled", "ON"},
              {"Rpl_semi_sync_" + name + "_status", "ON"}};
    CHECK(replication(mysql_with(semi), Level::ok, "semi-synchronous"));
    semi["Rpl_semi_sync_" + name + "_status"] = "OFF";
    CHECK(replication(mysql_with(semi), Level::warning, "fallen back to asynchronous"));
  }
  const DatabaseFacts galera = mysql_with({{"wsrep_on", "ON"}, {"wsrep_cluster_size", "3"}});
  CHECK(replication(galera, Level::warning, "name one node"));
  CHECK(label_of(galera).starts_with("best effort"));
}

TEST_CASE("doctor: a standby takes no locks, and nothing else is said of it") {
  const DatabaseFacts standby = postgres_with({{"standby", "t"}});
  CHECK(says(standby, "role", Level::error, "name the primary"));
  CHECK(check_database(standby).back().check == "role");
  CHECK(!takes_locks(standby));
  CHECK(says(mysql_with({{"read_only", "ON"}}), "role", Level::error, "read-only"));
}

TEST_CASE("doctor: a pooler, timeouts, few connections and plain text are warned of") {
  DatabaseFacts pooled = postgres_with({});
  pooled.pooled = true;
  CHECK(says(pooled, "pooler", Level::warning, "waiters poll"));
  pooled.settings.values["idle_session_timeout"] = "10000";
  CHECK(says(pooled, "timeouts", Level::ok, "dlock reconnects"));
  CHECK(says(postgres_with({{"idle_session_timeout", "10000"}}), "timeouts", Level::warning,
             "idle_session_timeout"));
  CHECK(says(postgres_with({{"idle_session_timeout", "60000"}}), "timeouts", Level::ok,
             "dlock reconnects"));
  CHECK(says(mysql_with({{"wait_timeout", "10"}}), "timeouts", Level::warning, "wait_timeout"));
  CHECK(says(postgres_with({{"connections", "95"}}), "connections", Level::warning, "95 of 100"));
  CHECK(says(mysql_with({{"Threads_connected", "150"}}), "connections", Level::warning,
             "waiters keep none"));
  CHECK(says(postgres_with({{"user_connections", "4"}, {"user_limit", "4"}}), "connections",
             Level::warning, "by this user 4 of 4"));
  CHECK(says(mysql_with({{"user_connections", "4"}, {"user_limit", "5"}}), "connections", Level::ok,
             "by this user 4 of 5"));
  DatabaseFacts afar = postgres_with({});
  afar.here = false;
  CHECK(says(afar, "tls", Level::warning, "sslmode=verify-full"));
  afar.settings.values["tls"] = "TLSv1.3, TLS_AES_256_GCM_SHA384";
  CHECK(says(afar, "tls", Level::ok, "TLSv1.3"));
}

TEST_CASE(
    "doctor: a table without a key, a lock that failed and a server that is away are errors") {
  CHECK(says(postgres_with({{"table", ""}}), "table", Level::ok, "the first lock creates it"));
  CHECK(says(mysql_with({{"name_key", ""}}), "table", Level::error, "ADD PRIMARY KEY"));
  CHECK(says(mysql_with({{"name_key", "PRI"}}), "table", Level::ok, "there"));
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
