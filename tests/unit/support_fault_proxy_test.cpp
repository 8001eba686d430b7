#include "support/fault_proxy.hpp"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include "support/sockets.hpp"
#include "support/temp_dir.hpp"

namespace dlock::test {

/// A client's connection through a proxy, and the server's end of it.
struct Proxied {
  TempDir dir{};
  Address upstream{dir / "server.sock"};
  Fd listener = listen_at(upstream);
  FaultProxy proxy{upstream};
  Fd client = connect_to(proxy.address());
  Fd server{accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)};
};

TEST_CASE("a fault proxy forwards the bytes of a protocol that is not RESP as they come") {
  const Proxied proxied;
  const int client = proxied.client.get(), server = proxied.server.get();
  // The first byte of a packet of MySQL is its length, and any byte may come first after a pause.
  for (const char* const bytes : {"$ packet of 36 bytes", "* packet of 42", "+", "hello"}) {
    REQUIRE(send_all(server, bytes));
    CHECK(receive_some(client, milliseconds(2000)) == bytes);
    REQUIRE(send_all(client, bytes));
    CHECK(receive_some(server, milliseconds(2000)) == bytes);
  }
}

TEST_CASE("a fault proxy holds back a message of RESP until it is whole") {
  const Proxied proxied;
  const int client = proxied.client.get(), server = proxied.server.get();
  REQUIRE(send_all(client, "*1\r\n$4\r\nPI"));
  CHECK(receive_some(server, milliseconds(50)).empty());
  REQUIRE(send_all(client, "NG\r\n"));
  CHECK(receive_some(server) == "*1\r\n$4\r\nPING\r\n");
  REQUIRE(send_all(server, "+PONG\r\n"));
  CHECK(receive_some(client) == "+PONG\r\n");
}

}  // namespace dlock::test
