// Locks in a PostgreSQL database, as users of dlock meet them.

#include <doctest/doctest.h>
#include <signal.h>
#include <algorithm>
#include <filesystem>

#include "cli/place.hpp"
#include "support/dlock_binary.hpp"
#include "support/eventually.hpp"
#include "support/files.hpp"
#include "support/postgres_server.hpp"

namespace dlock::test {
namespace {

constexpr const char* password = "s3cret-of-the-test";

bool no_postgres() {
  if (PostgresServer::is_installed()) return false;
  MESSAGE("skipped: postgresql is not installed");
  return true;
}

/// One server for all tests of a process; each has a table of its own.
PostgresServer& postgres() {
  static PostgresServer server(
      {true,
       {},
       "local all postgres trust\nlocal all all trust\nhost all postgres 127.0.0.1/32 trust\n"
       "host all all 127.0.0.1/32 scram-sha-256\n"});
  return server;
}

PostgresServer& empty_database() {
  postgres().query("DROP TABLE IF EXISTS dlock");
  return postgres();
}

ProcessOptions at(const std::string& url) {
  ProcessOptions options;
  options.env["DLOCK_SERVER"] = url;
  return options;
}

Result dlock_at(const std::string& url, const std::vector<std::string>& arguments) {
  return dlock(arguments, at(url));
}

Result run_at(const std::string& url) { return dlock_at(url, {"run", "-k", "a", "--", "true"}); }

std::size_t waiters(const std::string& url) {
  const auto seen = dlock_at(url, {"inspect", "-k", "a", "--json"});
  const auto state = nlohmann::ordered_json::parse(seen.out, nullptr, false);
  return state.is_object() ? state["waiters"].size() : 0;
}

TEST_CASE("database: a lock is taken, renewed, seen and released by commands of their own") {
  if (no_postgres()) return;
  const std::string url = empty_database().url();
  const auto taken = dlock_at(url, {"acquire", "-k", "a", "-t", "60s"});
  REQUIRE(taken.exit_code == 0);
  const std::string token = taken.out.substr(0, taken.out.size() - 1);
  CHECK(dlock_at(url, {"run", "-n", "-k", "a", "--", "true"}).exit_code == 75);
  CHECK(holds(dlock_at(url, {"inspect"}).out, "a "));
  CHECK(dlock_at(url, {"renew", "-k", "a", "--token", token}).exit_code == 0);
  CHECK(dlock_at(url, {"release", "-k", "a", "--token", token}).exit_code == 0);
  CHECK(dlock_at(url, {"renew", "-k", "a", "--token", token}).exit_code == 79);
  CHECK(run_at(url).exit_code == 0);
}

TEST_CASE("database: a waiter is woken by the release, and runs") {
  if (no_postgres()) return;
  const std::string url = empty_database().url();
  const TempDir dir;
  Process holder = start_dlock(
      {"run", "-k", "a", "--", "sh", "-c",
       "touch '" + (dir / "in") + "'; until [ -e '" + (dir / "end") + "' ]; do sleep 0.05; done"},
      at(url));
  REQUIRE(eventually([&] { return std::filesystem::exists(dir / "in"); }));
  Process waiter = start_dlock({"run", "-w", "60", "-k", "a", "--", "echo", "second"}, at(url));
  REQUIRE(eventually([&] { return waiters(url) == 1; }));
  write_file(dir / "end", "");
  CHECK(holder.wait().exit_code == 0);
  const auto result = waiter.wait();
  CHECK(result.exit_code == 0);
  CHECK(result.out == "second\n");
  // It was told: by itself it would have looked after 25 s.
  CHECK(result.duration < std::chrono::seconds(20));
}

TEST_CASE("database: a holder at rest keeps no connection") {
  if (no_postgres()) return;
  PostgresServer& server = empty_database();
  const std::string connections =
      "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'dlock' AND pid <> "
      "pg_backend_pid()";
  Process holder =
      start_dlock({"run", "-k", "a", "-t", "16s", "--", "sleep", "300"}, at(server.url()));
  REQUIRE(eventually([&] { return server.text(connections) != "0\n"; }));
  CHECK(eventually([&] { return server.text(connections) == "0\n"; }, milliseconds(30'000)));
  CHECK(holder.running());
  CHECK(dlock_at(server.url(), {"run", "-n", "-k", "a", "--", "true"}).exit_code == 75);
}

TEST_CASE("database: a password comes from the URL, from dlock's places and from libpq's") {
  if (no_postgres()) return;
  PostgresServer& server = empty_database();
  server.query("DROP ROLE IF EXISTS app; CREATE ROLE app LOGIN PASSWORD '" + std::string(password) +
               "'; GRANT ALL ON SCHEMA public TO app");
  const std::string rest = "@127.0.0.1:" + std::to_string(server.port()) + "/postgres";
  const std::string without = "postgresql://app" + rest;
  auto environment = at(without);
  const auto wrong = [&](const Result& result) {
    CHECK(result.exit_code == 77);
    CHECK(!holds(result.out + result.err, password));
    CHECK(!holds(result.out + result.err, "wrong-one"));
  };
  CHECK(run_at("postgres://app:" + std::string(password) + rest).exit_code == 0);
  wrong(run_at("postgres://app:wrong-one" + rest));
  wrong(run_at(without));
  environment.env["PGPASSWORD"] = password;
  CHECK(dlock({"run", "-k", "a", "--", "true"}, environment).exit_code == 0);
  environment.env["DLOCK_PASSWORD"] = "wrong-one";
  wrong(dlock({"run", "-k", "a", "--", "true"}, environment));
  environment.env["PGPASSWORD"] = "wrong-one";
  environment.env["DLOCK_PASSWORD"] = password;
  CHECK(dlock({"run", "-k", "a", "--", "true"}, environment).exit_code == 0);
  CHECK(!holds(server.log(), password));
}

TEST_CASE("database: what cannot be reached or has no database ends with 69") {
  if (no_postgres()) return;
  PostgresServer& server = empty_database();
  const auto nobody = run_at("postgres://u:pw-of-it@127.0.0.1:1/db");
  CHECK(nobody.exit_code == 69);
  CHECK(holds(nobody.err, "postgres://127.0.0.1:1/db: "));
  CHECK(!holds(nobody.err, "pw-of-it"));
  CHECK(run_at(server.url("postgres", "nowhere")).exit_code == 69);
  CHECK(run_at(server.url() + "&nonsense=1").exit_code != 0);
}

TEST_CASE("database: a standby is refused, and so is a user without rights") {
  if (no_postgres()) return;
  PostgresServer server;
  CHECK(run_at(server.url()).exit_code == 0);
  server.query("CREATE ROLE reader LOGIN; GRANT SELECT ON dlock TO reader");
  const auto reader = run_at(server.url("reader"));
  CHECK(reader.exit_code == 77);
  CHECK(holds(reader.err, "dlock doctor --acl"));
  server.query("DROP TABLE dlock");
  CHECK(run_at(server.url("reader")).exit_code == 77);  // may not make the table
  CHECK(run_at(server.url()).exit_code == 0);
  server.become_standby();
  const auto standby = run_at(server.url());
  CHECK(standby.exit_code == 69);
  CHECK(holds(standby.err, "standby"));
}

TEST_CASE("database: a record of a newer dlock, or of none, is left alone") {
  if (no_postgres()) return;
  PostgresServer& server = empty_database();
  const auto url = server.url();
  const auto with_body = [&](const std::string& body) {
    server.query("UPDATE dlock SET body = convert_to('" + body + "', 'UTF8')");
    return run_at(url);
  };
  CHECK(run_at(url).exit_code == 0);
  const auto newer = with_body("dlock-record 2\nwhatever\n");
  CHECK(newer.exit_code == 65);
  CHECK(holds(newer.err, "another version"));
  CHECK(with_body("hello").exit_code == 65);
  CHECK(with_body("dlock-record 1\nkey b\nfence 1\nasked 0\nend\n").exit_code == 65);
  CHECK(dlock_at(url, {"inspect"}).exit_code == 0);
  CHECK(server.text("SELECT convert_from(body, 'UTF8') LIKE '%key b%' FROM dlock") == "t\n");
  server.query("DROP TABLE dlock; CREATE TABLE dlock (name text, version text)");
  CHECK(run_at(url).exit_code == 65);
}

TEST_CASE("database: locks outlive a crash of the server, and waiters come back to their places") {
  if (no_postgres()) return;
  PostgresServer server;
  const auto url = server.url();
  Process holder = start_dlock({"run", "-k", "a", "-t", "60s", "--", "sleep", "300"}, at(url));
  REQUIRE(eventually([&] { return !holds(dlock_at(url, {"inspect", "a"}).out, "free"); }));
  Process waiter = start_dlock({"run", "-w", "120", "-k", "a", "--", "echo", "second"}, at(url));
  REQUIRE(eventually([&] { return waiters(url) == 1; }));
  server.kill_hard();
  server.start();
  CHECK(dlock_at(url, {"run", "-n", "-k", "a", "--", "true"}).exit_code == 75);
  REQUIRE(eventually([&] { return waiters(url) == 1; }));
  holder.signal(SIGTERM);
  const auto result = waiter.wait(milliseconds(60'000));
  CHECK(result.exit_code == 0);
  CHECK(result.out == "second\n");
}

TEST_CASE("database: what does not go with one is refused in one line") {
  CHECK(
      dlock_at("postgres://h/db", {"run", "--replicas", "1", "-k", "a", "--", "true"}).exit_code ==
      64);
  CHECK(dlock_at("postgres://h/db", {"run", "--tls-ca", "/f", "-k", "a", "--", "true"}).exit_code ==
        64);
  CHECK(dlock({"run", "--server", "postgres://h/a", "--server", "redis://b", "--server",
               "redis://c", "-k", "a", "--", "true"})
            .exit_code == 64);
}

}  // namespace
}  // namespace dlock::test
