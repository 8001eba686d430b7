// Faults of a database that holds locks, and of its data.

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>
#include <initializer_list>
#include <regex>
#include <utility>
#include <vector>

#include "cli/databases.hpp"
#include "cli/place.hpp"
#include "support/fake_server.hpp"
#include "support/stretched.hpp"

namespace dlock::test {
namespace {

TEST_CASE(
    "database: roles of PostgreSQL with schemas of their own share one table, or are refused") {
  if (is_missing<PostgresServer>()) return;
  DatabaseServer& server = empty_database<PostgresServer>();
  for (const std::string role : {"web", "batch"}) {
    server.make_user(role, password, true);
    server.text("CREATE SCHEMA AUTHORIZATION " + role);
  }
  const auto url = [&](const std::string& role, const std::string& parameters = "") {
    return server.tcp_url(role + ":" + password) + parameters;
  };
  const CommandInside holder(url("web"));
  CHECK(server.text("SELECT schemaname FROM pg_tables WHERE tablename = 'dlock'") == "public\n");
  check_says(run_at(url("batch")), 77, "permission denied for table dlock");
  server.text("GRANT SELECT, INSERT, UPDATE, DELETE ON dlock TO batch");
  CHECK(dlock_at(url("batch"), {"run", "-n", "-k", "a", "--", "true"}).exit_code == 75);
  CHECK(holds(finding(doctor_at(url("batch")), "table"), "public.dlock"));
  server.text("CREATE TABLE batch.dlock (LIKE public.dlock INCLUDING ALL)");
  for (const std::string& two : {run_at(url("web")).err, doctor_at(url("batch")).out}) {
    CHECK(holds(two, "batch.dlock, public.dlock"));
  }
  CHECK(run_at(url("web")).exit_code == 77);
  const std::string chosen = "?dlock-schema=public";
  CHECK(dlock_at(url("batch", chosen), {"run", "-n", "-k", "a", "--", "true"}).exit_code == 75);
  server.text("DROP SCHEMA batch, web CASCADE");
}

TEST_CASE("database: the table of PostgreSQL is made in the schema that the URL names") {
  if (is_missing<PostgresServer>()) return;
  DatabaseServer& server = empty_database<PostgresServer>();
  server.make_user("guest", password, false);
  server.text("CREATE SCHEMA \"of \"\"locks\"\"\"");
  const std::string guest = server.tcp_url("guest:" + std::string(password));
  const std::string named = guest + "?dlock-schema=of%20%22locks%22";
  const Result refused = run_at(guest);
  check_message(refused, 77, "cannot create the table public.dlock");
  CHECK(holds(refused.err, "?dlock-schema=NAME"));
  const std::string rights = dlock_at(named, {"doctor", "--acl"}).out;
  server.text(std::regex_replace(rights, std::regex("\"USER\""), "guest"));
  const CommandInside holder(named);
  // The only table of a database is also found without the parameter.
  CHECK(dlock_at(server.url(), {"run", "-n", "-k", "a", "--", "true"}).exit_code == 75);
  CHECK(holds(run_at(server.url() + "&dlock-schema=public").err, "\"of \"\"locks\"\"\".dlock"));
  CHECK(run_at(server.url() + "&dlock-schema=").exit_code == 64);
  server.text("DROP SCHEMA \"of \"\"locks\"\"\" CASCADE");
}

TEST_CASE("database: a wrong parameter of PostgreSQL's URL is one line, and no outage") {
  if (is_missing<PostgresServer>()) return;
  const std::string url = "postgres://u:sekret@127.0.0.1/db?sslmode=full";
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"run", "-w", "9", "-k", "a", "--", "true"}, {"doctor"}}) {
    const Result refused = dlock_at(url, words);
    CAPTURE(words[0]);
    check_message(refused, 64, "postgres://127.0.0.1/db: invalid sslmode value: \"full\"");
  }
}

TEST_CASE("database: that a role of PostgreSQL may not see its activity is named") {
  if (is_missing<PostgresServer>()) return;
  DatabaseServer& server = empty_database<PostgresServer>();
  server.make_user("limited", password, true);
  const std::string url = server.tcp_url("limited:" + std::string(password));
  REQUIRE(run_at(server.url()).exit_code == 0);
  server.text(
      "GRANT SELECT, INSERT, UPDATE, DELETE ON dlock TO limited; REVOKE SELECT ON "
      "pg_stat_activity FROM PUBLIC");
  check_says(run_at(url), 77, "pg_stat_activity: `dlock doctor --acl`");
  CHECK(holds(finding(doctor_at(url), "lock"), "pg_stat_activity"));
  server.text("GRANT SELECT ON pg_stat_activity TO PUBLIC");
}

TEST_CASE("database: a socket without a server is one line, and no file is closed twice for it") {
  const TempDir dir;
  const std::string trace = dir / "trace";
  const auto traced = [&](std::vector<std::string> words) {
    words.insert(words.begin(),
                 {"strace", "-f", "-qq", "-e", "trace=close", "-e", "status=failed", "-o", trace});
    return Process(words).wait();
  };
  if (skip_if(traced({"true"}).exit_code != 0, "strace may not trace here")) return;
  check_message(traced({DLOCK_BINARY, "run", "-n", "-k", "a", "--server",
                        "mysql://u@/db?socket=" + (dir / "no.sock"), "--", "true"}),
                69, "cannot connect to the socket " + (dir / "no.sock") + ": No such file");
  CHECK(!holds(read_file(trace), "EBADF"));
}

TEST_OF_DATABASES("database: a table of another shape is refused, and left as it is") {
  if (is_missing<Server>()) return;
  DatabaseServer& server = empty_database<Server>();
  const bool postgres = std::is_same_v<Server, PostgresServer>;
  const std::string bytes = postgres ? "bytea" : "varbinary(700)";
  const std::string body = postgres ? "bytea" : "mediumblob";
  for (const std::string& columns :
       {"name " + bytes + " PRIMARY KEY, version bigint, ends bigint",
        "id " + bytes + " PRIMARY KEY, version bigint, ends bigint, body " + body,
        "name " + bytes + " PRIMARY KEY, version bigint, ends bigint, body " + body +
            ", more int NOT NULL" + (postgres ? "" : " CHECK (more > 0)")}) {
    CAPTURE(columns);
    server.text("DROP TABLE IF EXISTS dlock; CREATE TABLE dlock (" + columns + ")");
    check_message(run_at(server.url()), 65);
    CHECK(server.text("SELECT count(*) FROM dlock") == "0\n");
  }
}

TEST_OF_DATABASES("database: a table without a key is no place for locks") {
  if (is_missing<Server>()) return;
  DatabaseServer& server = empty_database<Server>();
  CHECK(run_at(server.url()).exit_code == 0);
  server.text(
      "CREATE TABLE copy AS SELECT * FROM dlock; DROP TABLE dlock; ALTER TABLE copy RENAME "
      "TO dlock; DELETE FROM dlock");
  if (std::is_same_v<Server, PostgresServer>) {
    CHECK(run_at(server.url()).exit_code == 65);
  } else {
    // The server does not report the missing key; only duplicate rows show it.
    CHECK(run_at(server.url()).exit_code == 0);
    server.text("INSERT INTO dlock SELECT * FROM dlock");
    CHECK(run_at(server.url()).exit_code == 65);
    CHECK(holds(finding(doctor_at(server.url()), "table"), "ADD PRIMARY KEY"));
  }
}

TEST_OF_DATABASES("database: a version that is changed by hand costs a holder nothing") {
  if (is_missing<Server>()) return;
  DatabaseServer& server = empty_database<Server>();
  CommandInside holder(server.url(), {"-t", "9s"});
  for (int i = 0; i < 2; ++i) {
    server.text("UPDATE dlock SET version = version + 7");
    const std::string changed = server.text("SELECT version FROM dlock");
    // A renewal overwrites whichever version it finds.
    REQUIRE(eventually([&] { return server.text("SELECT version FROM dlock") != changed; },
                       milliseconds(20'000)));
  }
  CHECK(holder.process.running());
  holder.process.signal(SIGTERM);
  holder.process.wait();
  CHECK(run_at(server.url()).exit_code == 0);
}

/// The URL of several servers of a test, in this order.
std::string url_of_all(std::initializer_list<const PostgresServer*> servers) {
  std::string hosts, ports;
  for (const PostgresServer* each : servers) {
    hosts += (hosts.empty() ? "" : ",") + each->directory();
    ports += (ports.empty() ? "" : ",") + std::to_string(each->port());
  }
  return "postgres:///postgres?host=" + hosts + "&port=" + ports + "&user=postgres";
}

TEST_CASE("database: a standby is passed over, and after its promotion knows the locks") {
  if (is_missing<PostgresServer>()) return;
  PostgresServer primary;
  CHECK(run_at(primary.url()).exit_code == 0);
  PostgresServer standby(primary);
  check_says(run_at(standby.url()), 69, "a standby: locks need the primary");
  CHECK(finding(doctor_at(standby.url()), "role").starts_with("error a standby"));
  REQUIRE(eventually([&] {
    return finding(doctor_at(primary.url()), "replication").starts_with("warning 1 replica");
  }));
  const std::string url = url_of_all({&standby, &primary});
  Process holder = start_dlock({"run", "-k", "b", "-t", "60s", "--", "sleep", "300"}, at(url));
  const auto held = [&] { return dlock_at(url, {"run", "-n", "-k", "b", "--", "true"}).exit_code; };
  REQUIRE(eventually([&] { return held() == 75; }));
  const std::string written = primary.text("SELECT pg_current_wal_lsn()");
  REQUIRE(eventually([&] {
    return standby.text("SELECT pg_last_wal_replay_lsn() >= '" +
                        written.substr(0, written.size() - 1) + "'") == "t\n";
  }));
  primary.kill_hard();
  standby.query("SELECT pg_promote()");
  REQUIRE(eventually([&] { return standby.text("SELECT pg_is_in_recovery()") == "f\n"; }));
  CHECK(held() == 75);
  holder.signal(SIGTERM);
  holder.wait();
  CHECK(held() == 0);
}

TEST_CASE("database: a holder whose grant a failover has forgotten stops at its next renewal") {
  if (is_missing<PostgresServer>()) return;
  PostgresServer primary;
  CHECK(run_at(primary.url()).exit_code == 0);
  PostgresServer standby(primary);
  pid_t sender = 0;
  REQUIRE(eventually([&] { return (sender = primary.log_sender()) != 0; }));
  kill(sender, SIGSTOP);
  const std::string url = url_of_all({&primary, &standby});
  const TempDir dir;
  Process holder = start_dlock({"run", "-k", "a", "-t", "30s", "--", "sh", "-c",
                                "echo $DLOCK_FENCE >'" + (dir / "fence") + "'; touch '" +
                                    (dir / "in") + "'; exec sleep 300"},
                               at(url));
  REQUIRE(eventually([&] { return std::filesystem::exists(dir / "in"); }));
  primary.signal_all(SIGKILL);
  primary.kill_hard();
  standby.query("SELECT pg_promote()");
  REQUIRE(eventually([&] { return standby.text("SELECT pg_is_in_recovery()") == "f\n"; }));
  // For a moment there are two holders, as the manual says.
  const auto second =
      dlock_at(url, {"run", "-n", "-k", "a", "--", "sh", "-c", "echo $DLOCK_FENCE"});
  CHECK(second.exit_code == 0);
  CHECK(std::stoll(second.out) > std::stoll(read_file(dir / "fence")));
  const auto ended = holder.wait(milliseconds(60'000));
  CHECK(ended.exit_code == 79);
  // The holder got this answer from the new primary, before its lease ended.
  CHECK(holds(ended.err, "no longer has it"));
}

TEST_CASE("database: a host that no resolver answers for is given up in time") {
  std::vector<Process> all;
  for (const std::string url :
       {"postgres://u@db.100000.test/db", "postgres://u@a.100000.test,b.100000.test/db",
        "mysql://u@db.100000.test/db", "mysql://u@db.100000.test/db?ssl-mode=VERIFY_IDENTITY"}) {
    all.push_back(start_dlock({"run", "-k", "a", "--", "true"}, at_test_names(url)));
  }
  for (Process& each : all) check_given_up(each.wait());
}

TEST_CASE("database: a host that PostgreSQL's own variables name is looked up in time, too") {
  const TempDir dir;
  const std::string silent = "silent.100000.test";
  write_file(dir / "services", "[locks]\nhost=" + silent + "\n");
  ProcessOptions by_host = at_test_names("postgres://u@/db"), by_service = by_host;
  by_host.env["PGHOST"] = silent;
  by_service.env["PGSERVICEFILE"] = dir / "services";
  by_service.env["PGSERVICE"] = "locks";
  std::vector<Process> all;
  for (const ProcessOptions& options : {by_host, by_service}) {
    all.push_back(start_dlock({"run", "-k", "a", "--", "true"}, options));
  }
  for (Process& each : all) check_given_up(each.wait());
  if (is_missing<PostgresServer>()) return;
  const PostgresServer server({true, {}, ""});
  ProcessOptions several = at_test_names("postgres://postgres@/postgres");
  several.env["PGHOST"] = silent + ",db.1.test";
  several.env["PGPORT"] = std::to_string(server.port());
  const auto served = once_served([&] { return dlock({"run", "-k", "a", "--", "true"}, several); });
  CHECK(served.exit_code == 0);
}

TEST_CASE("database: of several hosts of PostgreSQL one that is not found is passed over") {
  if (is_missing<PostgresServer>()) return;
  const PostgresServer server({true, {}, ""});
  const std::string port = ":" + std::to_string(server.port());
  const auto lock_at = [&](const std::string& hosts) {
    return dlock({"run", "-k", "a", "--", "true"},
                 at_test_names("postgres://postgres@" + hosts + "/postgres"));
  };
  check_names_passed_over(lock_at, port);
}

}  // namespace
}  // namespace dlock::test
