#include <doctest/doctest.h>

#include <string>
#include <thread>
#include <vector>

#include "base/duplicate_servers.hpp"
#include "base/error.hpp"

namespace dlock {
namespace {

using Which = std::vector<bool>;
using Pair = std::pair<std::size_t, std::size_t>;

Endpoint at(const std::string& host, int port, bool tls = false) {
  Endpoint server;
  server.host = host;
  server.port = port;
  if (tls) server.tls = TlsSettings{};
  return server;
}

Endpoint socket_at(const std::string& path) {
  Endpoint server;
  server.socket_path = path;
  return server;
}

Which possible(std::vector<Endpoint> servers) {
  return DuplicateServers(std::move(servers)).possible();
}

/// Whether it waits for an address.
bool waits(const DuplicateServers& doubles) {
  const auto until = later(BootClock::now(), milliseconds(10));
  doubles.await_addresses(until, -1);
  return BootClock::now() >= until;
}

/// If it waits, the test never ends.
void does_not_wait(const DuplicateServers& doubles) { doubles.await_addresses(never, -1); }

}  // namespace

TEST_CASE("servers that may be others of them are those on one host by different ways") {
  const Endpoint one = socket_at("/nonexistent/a"), other = socket_at("/nonexistent/b");
  CHECK(possible({one, other, at("127.0.0.1", 1)}) == Which(3, true));
  CHECK(possible({one, other, at("db1", 1)}) == Which(3, false));
  CHECK(possible({at("127.0.0.1", 1), at("127.0.0.1", 2), at("db1", 1)}) == Which(3, false));
  CHECK(possible({at("127.0.0.1", 1), at("127.0.0.2", 1), at("::", 2)}) ==
        Which{true, true, false});
  CHECK(possible({at("db1", 1), at("db1", 2, true), at("db1", 3, true)}) == Which(3, true));
  CHECK(possible({at("db1", 1), at("192.0.2.1", 1), at("db2", 1)}) == Which(3, false));
}

TEST_CASE("two names that lead to one address and port are one server") {
  DuplicateServers doubles({at("db1", 1), at("db2", 2), at("db3", 1)});
  CHECK_FALSE(doubles.shown());
  doubles.resolved(0, {"192.0.2.1", "192.0.2.2"});
  doubles.resolved(1, {"192.0.2.2"});
  CHECK_FALSE(doubles.shown());
  doubles.resolved(2, {"192.0.2.2"});
  CHECK(doubles.shown() == Pair(0, 2));

  DuplicateServers in_digits({at("0:0:0:0:0:0:0:1", 1), at("::2", 1), at("::1", 1)});
  CHECK(in_digits.shown() == Pair(0, 2));
}

TEST_CASE("under TLS what listens at one address may be several servers by name") {
  DuplicateServers apart({at("db1", 1, true), at("db2", 1, true), at("db3", 1, true)});
  for (std::size_t i = 0; i < 2; ++i) apart.resolved(i, {"192.0.2.1"});
  CHECK_FALSE(apart.shown());
  CHECK(apart.possible() == Which{true, true, false});

  Endpoint first = at("db1", 1, true), second = at("db2", 1, true);
  first.tls->server_name = second.tls->server_name = "db";
  DuplicateServers alike({first, second, at("db3", 1)});
  for (std::size_t i = 0; i < 2; ++i) alike.resolved(i, {"192.0.2.1"});
  CHECK(alike.shown() == Pair(0, 1));
}

TEST_CASE("a name that leads to this host may be that of a socket here") {
  DuplicateServers doubles({socket_at("/nonexistent/a"), at("db1", 1), at("db2", 1)});
  doubles.resolved(1, {"127.0.0.1"});
  doubles.resolved(2, {"192.0.2.1"});
  CHECK(doubles.possible() == Which{true, true, false});
}

TEST_CASE("addresses that can show nothing are not waited for, nor are those that there are not") {
  does_not_wait(DuplicateServers({at("db1", 1), at("db2", 2), at("192.0.2.1", 3)}));
  does_not_wait(DuplicateServers({at("192.0.2.1", 1), at("::1", 1), socket_at("/nonexistent/a")}));
  DuplicateServers doubles({at("db1", 1), at("db2", 1), at("db3", 3)});
  CHECK(waits(doubles));
  doubles.resolved(0, {"192.0.2.1"});
  CHECK(waits(doubles));
  std::thread resolver([&] { doubles.resolved(1, {}); });
  does_not_wait(doubles);
  resolver.join();
  CHECK_FALSE(doubles.shown());

  const DuplicateServers unknown({at("db1", 1), at("db2", 1), at("db3", 1)});
  const Event interrupt;
  interrupt.raise();
  CHECK_THROWS_AS(unknown.await_addresses(never, interrupt.fd()), Error);
}

}  // namespace dlock
