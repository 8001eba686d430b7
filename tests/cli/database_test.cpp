#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <climits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "cli/databases.hpp"
#include "cli/place.hpp"
#include "support/fake_server.hpp"
#include "support/fault_proxy.hpp"
#include "support/tls_databases.hpp"

// Locks in PostgreSQL and MariaDB, as users of dlock see them.
// Databases with TLS and the real binary: which servers are trusted, which are refused, and which
// errors may pass.

namespace dlock::test {
namespace {

TEST_OF_DATABASES("database: locks, latches and guards live there") {
  if (is_missing<Server>()) return;
  check_all_commands_at(empty_database<Server>().url());
}

TEST_OF_DATABASES("database: a holder at rest keeps no connection") {
  if (is_missing<Server>()) return;
  DatabaseServer& server = empty_database<Server>();
  const CommandInside holder(server.url(), {"-t", "16s"});
  CHECK(eventually([&] { return server.connections() == 0; }, milliseconds(30'000)));
  CHECK(holder.process.running());
  CHECK(dlock_at(server.url(), {"run", "-n", "-k", "a", "--", "true"}).exit_code == 75);
}

/// On a server that allows `app` only a few connections, and the administrator any number.
void check_holder_among_waiters(DatabaseServer& server) {
  constexpr std::size_t crowd = 8;
  const std::string url = server.tcp_url("app:" + std::string(password));
  CommandInside holder(url, {"-q", "-t", "16s"});
  std::vector<Process> all;
  for (std::size_t i = 0; i < crowd; ++i) {
    all.push_back(start_dlock({"run", "-q", "-k", "a", "-w", "300", "--", "true"}, at(url)));
  }
  REQUIRE(eventually([&] { return waiters(server.url()) == crowd; }, milliseconds(30'000)));
  int left = INT_MAX;
  const auto is_renewed = [&] {
    const auto state = state_at(server.url(), "a");
    if (!state.is_object() || state["holders"].empty()) return false;
    const int before = std::exchange(left, state["holders"][0]["lease_left_ms"].get<int>());
    return left > before;
  };
  CHECK(eventually(is_renewed, milliseconds(30'000)));
  holder.end();
  CHECK(holder.process.wait().exit_code == 0);
  for (Process& each : all) CHECK(each.wait().exit_code == 0);
}

TEST_CASE("database: waiters leave a holder room on a PostgreSQL of few connections") {
  if (is_missing<PostgresServer>()) return;
  PostgresServer server(PostgresOptions{true, {"max_connections=9"}, {}});
  server.make_user("app", password, true);
  check_holder_among_waiters(server);
  server.text("ALTER ROLE app CONNECTION LIMIT 4");
  check_holder_among_waiters(server);
}

TEST_CASE("database: waiters leave a holder room on a MariaDB of few connections") {
  if (is_missing<MariaDbServer>()) return;
  MariaDbServer server({"--max-connections=10"});
  server.make_user("app", password, true);
  check_holder_among_waiters(server);
  server.text("ALTER USER app WITH MAX_USER_CONNECTIONS 4");
  check_holder_among_waiters(server);
}

TEST_OF_DATABASES("database: a password comes from the URL, dlock's places and the library's") {
  if (is_missing<Server>()) return;
  DatabaseServer& server = empty_database<Server>();
  server.make_user("app", password, true);
  auto environment = at(server.tcp_url("app"));
  const auto wrong = [&](const Result& result) {
    CHECK(result.exit_code == 77);
    CHECK(!holds(result.out + result.err, password));
    CHECK(!holds(result.out + result.err, "wrong-one"));
  };
  CHECK(run_at(server.tcp_url("app:" + std::string(password))).exit_code == 0);
  wrong(run_at(server.tcp_url("app:wrong-one")));
  wrong(run_at(server.tcp_url("app")));
  environment.env[server.password_variable()] = password;
  CHECK(dlock({"run", "-k", "a", "--", "true"}, environment).exit_code == 0);
  environment.env["DLOCK_PASSWORD"] = "wrong-one";
  wrong(dlock({"run", "-k", "a", "--", "true"}, environment));
  environment.env[server.password_variable()] = "wrong-one";
  environment.env["DLOCK_PASSWORD"] = password;
  CHECK(dlock({"run", "-k", "a", "--", "true"}, environment).exit_code == 0);
  CHECK(!holds(server.log(), password));
}

TEST_OF_DATABASES("database: a holder and a waiter outlive a rotation of their password") {
  if (is_missing<Server>()) return;
  constexpr bool postgres = std::is_same_v<Server, PostgresServer>;
  DatabaseServer& server = empty_database<Server>();
  server.make_user("rotated", password, true);
  const TempDir dir;
  auto options = at(server.tcp_url("rotated"));
  options.env["DLOCK_PASSWORD_FILE"] = dir / "password";
  write_file(dir / "password", password);
  CommandInside holder(options, {"-q", "-t", "60s"});
  Process waiter = start_dlock({"run", "-k", "a", "--", "echo", "in"}, options);
  REQUIRE(eventually([&] { return waiters(server.url()) == 1; }));
  server.text(postgres ? "ALTER ROLE rotated PASSWORD 'new'; SELECT pg_terminate_backend(pid) "
                         "FROM pg_stat_activity WHERE usename = 'rotated'"
                       : "ALTER USER rotated IDENTIFIED BY 'new'; KILL USER rotated");
  CHECK(eventually([&] {
    return holds(waiter.err(), postgres ? "password authentication failed" : "Access denied");
  }));
  holder.end();
  write_file(dir / "password", "new");
  CHECK(holder.process.wait().exit_code == 0);
  CHECK(!holds(holder.process.err(), "could not release"));
  CHECK(waiter.wait().out == "in\n");
}

TEST_OF_DATABASES("database: what cannot be reached or has no database ends with 69") {
  if (is_missing<Server>()) return;
  DatabaseServer& server = empty_database<Server>();
  for (const std::string scheme : {"postgres", "mysql"}) {
    const auto nobody = run_at(scheme + "://u:pw-of-it@127.0.0.1:1/db");
    check_message(nobody, 69, scheme + "://127.0.0.1:1/db: ");
    CHECK(!holds(nobody.err, "pw-of-it"));
  }
  CHECK(run_at(server.url({}, "nowhere")).exit_code == 69);
  CHECK(run_at(server.url() + "&nonsense=1").exit_code == 64);
}

TEST_OF_DATABASES("database: a standby is refused, and so is a user without rights") {
  if (is_missing<Server>()) return;
  const auto server = new_server<Server>();
  CHECK(run_at(server->url()).exit_code == 0);
  server->make_user("reader", password, false);
  server->let_read("reader");
  const std::string login = "reader:" + std::string(password);
  check_message(run_at(server->tcp_url(login)), 77, "dlock doctor --acl");
  server->text("DROP TABLE dlock");
  // An administrator can run the printed commands.
  std::string rights = dlock_at(server->url(), {"doctor", "--acl"}).out;
  const auto user = rights.find("USER");
  REQUIRE(user != std::string::npos);
  server->text(rights.replace(user, 4, "reader"));
  CHECK(run_at(server->tcp_url(login)).exit_code == 0);
  server->text("DROP TABLE dlock");
  check_says(run_at(server->tcp_url(login)), 77, "dlock doctor --acl");
  CHECK(run_at(server->url()).exit_code == 0);
  server->become_standby();
  check_message(run_at(server->url()), 69, "locks need the primary");
}

TEST_OF_DATABASES("database: a record of a newer dlock, or of none, is left alone") {
  if (is_missing<Server>()) return;
  DatabaseServer& server = empty_database<Server>();
  const auto url = server.url();
  const auto with_body = [&](const std::string& body) {
    server.set_bodies(body);
    return run_at(url);
  };
  CHECK(run_at(url).exit_code == 0);
  check_says(with_body("dlock-record 2\nwhatever\n"), 65, "another version");
  CHECK(with_body("hello").exit_code == 65);
  const std::string of_another_key = "dlock-record 1\nkey b\nfence 1\nasked 0\nend\n";
  CHECK(with_body(of_another_key).exit_code == 65);
  CHECK(dlock_at(url, {"inspect"}).exit_code == 0);
  CHECK(server.text("SELECT octet_length(body) FROM dlock") ==
        std::to_string(of_another_key.size()) + "\n");
  server.text("DROP TABLE dlock; CREATE TABLE dlock (name varchar(9), version varchar(9))");
  CHECK(run_at(url).exit_code == 65);
}

TEST_OF_DATABASES(
    "database: locks outlive a crash of the server, and waiters come back to their places") {
  if (is_missing<Server>()) return;
  const auto own_server = new_server<Server>();
  DatabaseServer& server = *own_server;
  const auto url = server.url();
  const CommandInside holder(url, {"-t", "60s"});
  Process waiter = queued_at(url, 1, {"-w", "120", "--", "echo", "second"});
  server.kill_hard();
  server.start();
  CHECK(dlock_at(url, {"run", "-n", "-k", "a", "--", "true"}).exit_code == 75);
  REQUIRE(eventually([&] { return waiters(url) == 1; }));
  holder.process.signal(SIGTERM);
  check_ran(waiter.wait(milliseconds(60'000)), "second\n");
}

TEST_OF_DATABASES("database: an old arrival is removed, however many young ones come before it") {
  if (is_missing<Server>()) return;
  DatabaseServer& server = empty_database<Server>();
  REQUIRE(run_at(server.url()).exit_code == 0);
  std::string rows = "('dlock:arrival:ffff:old', 1, 1, 'dlock-arrival 1')";
  for (int i = 0; i < 60; ++i) {
    rows += ", ('dlock:arrival:0000:" + std::to_string(i) +
            "', 1, 9000000000000000, 'dlock-arrival 1')";
  }
  server.text("INSERT INTO dlock (name, version, ends, body) VALUES " + rows);
  int opened = 0;
  CHECK(eventually([&] {
    const std::string latch = "l" + std::to_string(++opened);
    dlock_at(server.url(), {"latch", "open", "-k", latch, "--count", "2", "-t", "60s"});
    return server.text("SELECT count(*) FROM dlock WHERE ends = 1") == "0\n";
  }));
  CHECK(server.text("SELECT count(*) FROM dlock WHERE ends = 9000000000000000") == "60\n");
}

TEST_OF_DATABASES("database: doctor --schema creates the table, or says why not") {
  if (is_missing<Server>()) return;
  DatabaseServer& server = empty_database<Server>();
  const auto schema = [](const std::string& url) { return dlock_at(url, {"doctor", "--schema"}); };
  CHECK(schema(server.url()).exit_code == 0);
  CHECK(server.text("SELECT count(*) FROM dlock") == "0\n");
  CHECK(holds(schema(server.url()).out, "the table dlock is there"));
  server.text("DROP TABLE dlock");
  server.make_user("guest", password, false);
  check_message(schema(server.tcp_url("guest:" + std::string(password))), 77);
  server.text("CREATE TABLE dlock (id int)");
  CHECK(schema(server.url()).exit_code == 65);
  server.text("DROP TABLE dlock");
  CHECK(schema("postgres://127.0.0.1:1/db").exit_code == 69);
  CHECK(schema("local:/tmp").exit_code == 64);
}

TEST_OF_DATABASES("database: doctor examines it, tries a lock, and leaves the table empty") {
  if (is_missing<Server>()) return;
  DatabaseServer& server = empty_database<Server>();
  const std::vector<std::string> sound{"reach", "engine",      "role",       "pooler",
                                       "tls",   "user",        "table",      "lock",
                                       "clock", "replication", "connections"};
  Result report;
  // The doctor reports one stall of a busy machine as a slow server, but a machine does not stall
  // every time.
  eventually([&] {
    empty_database<Server>();
    report = doctor_at(server.url());
    return std::all_of(sound.begin(), sound.end(), [&](const std::string& check) {
      return finding(report, check).starts_with("ok ");
    });
  });
  // The doctor warns of the PostgreSQL of the tests, which does not keep what it commits.
  const bool warned = std::is_same_v<Server, PostgresServer>;
  CHECK(report.exit_code == (warned ? 1 : 0));
  CHECK(finding(report, "persistence").starts_with(warned ? "warning fsync off" : "ok innodb_"));
  CHECK(finding(report, "label").starts_with(warned ? "ok best effort: a crash" : "ok safe"));
  for (const std::string& check : sound) {
    CAPTURE(check);
    CAPTURE(finding(report, check));
    CHECK(finding(report, check).starts_with("ok "));
  }
  CHECK(holds(finding(report, "tls"), "on this host"));
  CHECK(holds(finding(report, "table"), "dlock"));
  CHECK(server.text("SELECT count(*) FROM dlock").starts_with("0"));
}

TEST_CASE("database: doctor writes nothing to a replica that takes no locks") {
  if (is_missing<MariaDbServer>()) return;
  MariaDbServer server;
  // An administrator may write nevertheless.
  server.query("SET GLOBAL read_only = 1");
  const Result report = doctor_at(server.url());
  CHECK(report.exit_code == 2);
  CHECK(finding(report, "role").starts_with("error read-only"));
  CHECK(server.text("SHOW TABLES LIKE 'dlock'") == "");
}

TEST_CASE("database: a role that only reads by default takes locks, and doctor agrees") {
  if (is_missing<PostgresServer>()) return;
  DatabaseServer& server = empty_database<PostgresServer>();
  server.make_user("frugal", password, true);
  server.text("ALTER ROLE frugal SET default_transaction_read_only = on");
  const std::string url = server.tcp_url("frugal:" + std::string(password));
  CHECK(run_at(url).exit_code == 0);
  const auto report = doctor_at(url);
  CHECK(finding(report, "role").starts_with("ok "));
  CHECK(finding(report, "lock").starts_with("ok "));
}

TEST_CASE(
    "database: of several hosts of PostgreSQL one is passed over that never answers, or is away") {
  if (is_missing<PostgresServer>()) return;
  Address silent;
  const Fd listener = listen_at(silent);
  // The second one, without a port, has the usual one.
  for (const std::string& host :
       {"127.0.0.1:" + std::to_string(silent.port), std::string("127.0.0.9")}) {
    CAPTURE(host);
    std::string url = empty_database<PostgresServer>().tcp_url("postgres");
    url.insert(url.find('@') + 1, host + ",");
    const std::vector<std::string> words{"run", "-k", "a", "--", "echo", "ran"};
    check_ran(once_served([&] { return dlock_at(url, words); }), "ran\n");
  }
}

TEST_CASE("database: a client library that cannot be loaded is one line that names its package") {
  const TempDir dir;
  for (const std::string library : {"libpq.so.5", "libmariadb.so.3"}) write_file(dir / library, "");
  const auto without = [&](const std::string& url, const std::vector<std::string>& words) {
    ProcessOptions options = at(url);
    options.env["LD_LIBRARY_PATH"] = dir.path();
    return dlock(words, options);
  };
  const std::vector<std::string> run{"run", "-k", "a", "--", "echo", "ran"};
  for (const auto& [url, package] :
       {std::pair("postgres:///db", "libpq5"), std::pair("mysql:///db", "libmariadb3")}) {
    for (const auto& words : {run, {"doctor"}}) {
      check_message(without(url, words), 71, std::string("package ") + package);
    }
  }
  // The other engines do not need these libraries.
  CHECK(without("local:" + dir.path(), run).out == "ran\n");
}

}  // namespace

namespace {

/// A server that offers TLS, and does `then` once the client begins the handshake.
FakeServer shaking_hands(bool postgres, const Step& then) {
  if (postgres) return FakeServer({say("S"), then}, true);
  using namespace std::string_literals;
  const std::string greeting = "\x0a"s + "5.5.5-10.11.6-MariaDB\0"s + "\7\0\0\0"s + "12345678\0"s +
                               "\xfe\xff\x2d\2\0\xbf\x81\x15"s + std::string(10, '\0') +
                               "123456789012\0"s + "mysql_native_password\0"s;
  const std::string header{static_cast<char>(greeting.size()), '\0', '\0', '\0'};
  return FakeServer(std::vector{then}, true, say(header + greeting));
}

std::string encrypted_url(bool postgres, const FakeServer& server) {
  const std::string at = "://u@127.0.0.1:" + std::to_string(server.address().port) + "/db?";
  return postgres ? "postgres" + at + "sslmode=require" : "mysql" + at + "ssl-mode=REQUIRED";
}

/// A fatal TLS alert (RFC 8446, 6.2), and the end of the stream.
Step alert_and_close(char description) {
  return say_and_close(std::string("\x15\3\3\0\2\2", 6) + description);
}

TEST_OF_DATABASES("database: a server is verified by its certificate, if the URL says so") {
  if (is_missing<Server>()) return;
  const TestCa ca, other("Other CA");
  using Database = TlsDatabase<Server>;
  const Database good(ca, ca.issue("good", Database::names));
  CHECK(run_at(good.url(ca.file())).exit_code == 0);
  CHECK(holds(finding(doctor_at(good.url(ca.file())), "tls"), "TLSv1"));
  const Database misnamed(ca, ca.issue("misnamed", "DNS:elsewhere.test"));
  const Database expired(ca, ca.issue("expired", Database::names, -1));
  for (const std::string& url :
       {good.url(other.file()), misnamed.url(ca.file()), expired.url(ca.file())}) {
    CAPTURE(url);
    check_message(run_at(url), 77);
    CHECK(doctor_at(url).exit_code == 2);
  }
  // The same as with --tls-ca.
  for (const std::string& file : {std::string("/nowhere"), ca.issue("client").key}) {
    const auto url = good.url(file);
    const auto refused = run_at(url);
    CAPTURE(url);
    check_message(refused, 64);
    CHECK((file != "/nowhere" || holds(refused.err, file)));
    CHECK(doctor_at(url).exit_code == 64);
  }
}

TEST_OF_DATABASES("database: a server that falls silent in a TLS handshake is given up in time") {
  const bool postgres = std::is_same_v<Server, PostgresServer>;
  FakeServer server = shaking_hands(postgres, silence());
  const std::string url = encrypted_url(postgres, server);
  check_message(run_at(url), 69, "no answer in time");
  const int before = server.connections();
  Process waiter = start_dlock({"run", "-w", "300", "-k", "a", "--", "true"}, at(url));
  REQUIRE(eventually([&] { return server.connections() > before; }));
  waiter.signal(SIGTERM);
  const auto stopped = waiter.wait();
  CHECK(stopped.signal == SIGTERM);
}

TEST_OF_DATABASES(
    "database: who breaks a TLS handshake off is away, 69, unless it names a reason") {
  constexpr char internal_error = 80, bad_certificate = 42, unknown_ca = 48;
  const bool postgres = std::is_same_v<Server, PostgresServer>;
  for (const auto& [step, code] : {std::pair(hang_up(), 69), std::pair(say_and_reset(""), 69),
                                   std::pair(say_and_close("this is no TLS\n"), 69),
                                   std::pair(alert_and_close(internal_error), 69),
                                   std::pair(alert_and_close(bad_certificate), 77),
                                   std::pair(alert_and_close(unknown_ca), 77)}) {
    FakeServer server = shaking_hands(postgres, step);
    check_message(run_at(encrypted_url(postgres, server)), code);
  }
}

TEST_CASE("database: a waiter goes on after MariaDB has broken off its TLS handshake") {
  if (is_missing<MariaDbServer>()) return;
  const TestCa ca;
  using Database = TlsDatabase<MariaDbServer>;
  const Database database(ca, ca.issue("good", Database::names));
  const MysqlAddress by_socket = database.server.address(false);
  FaultProxy proxy(Address{by_socket.socket_path}, true);
  const std::string direct = database.server.url();
  const std::string proxied = "mysql://" + *by_socket.user +
                              "@127.0.0.1:" + std::to_string(proxy.address().port) + "/" +
                              by_socket.database + "?ssl-mode=REQUIRED";
  Process holder = start_dlock({"run", "-k", "a", "-t", "60s", "--", "sleep", "300"}, at(direct));
  REQUIRE(eventually([&] { return is_held(direct); }));
  Process waiter =
      start_dlock({"run", "-w", "120", "-k", "a", "--", "echo", "second"}, at(proxied));
  REQUIRE(eventually([&] { return says_that_it_waits(waiter); }));
  // More than the greeting, and less than the server sends in a handshake. No client can connect
  // meanwhile, so the next connection gets all of these bytes.
  constexpr std::size_t amid_the_handshake = 200;
  proxy.refuse(true);
  proxy.close_connections();
  proxy.close_after(Direction::replies, amid_the_handshake);
  const int before = proxy.connections();
  proxy.refuse(false);
  // The connection that is cut off, and another one.
  REQUIRE(eventually([&] { return proxy.connections() >= before + 2 || !waiter.running(); }));
  CAPTURE(waiter.err());
  CHECK(waiter.running());
  holder.signal(SIGTERM);
  check_ran(waiter.wait(milliseconds(60'000)), "second\n");
}

}  // namespace

}  // namespace dlock::test
