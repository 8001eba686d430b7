// Databases with TLS and the real binary: which servers are trusted, which are refused, and which
// errors may pass.

#include <doctest/doctest.h>
#include <signal.h>

#include <string>
#include <utility>
#include <vector>

#include "cli/databases.hpp"
#include "cli/place.hpp"
#include "support/eventually.hpp"
#include "support/fake_server.hpp"
#include "support/fault_proxy.hpp"
#include "support/patient_start.hpp"
#include "support/tls_databases.hpp"

namespace dlock::test {
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
