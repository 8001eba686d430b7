#include "support/fault_proxy.hpp"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include "support/sockets.hpp"
#include "support/temp_dir.hpp"

namespace dlock::test {

TEST_CASE("a fault proxy forwards the bytes of a protocol that is not RESP as they come") {
  const TempDir dir;
  Address upstream{dir / "server.sock"};
  const Fd listener = listen_at(upstream);
  FaultProxy proxy(upstream);
  const Fd client = connect_to(proxy.address());
  const Fd server(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  // The first byte of a packet of MySQL is its length, and any byte may come first after a pause.
  for (const char* const bytes : {"$ packet of 36 bytes", "* packet of 42", "+", "hello"}) {
    REQUIRE(send_all(server.get(), bytes));
    CHECK(receive_some(client.get(), milliseconds(2000)) == bytes);
    REQUIRE(send_all(client.get(), bytes));
    CHECK(receive_some(server.get(), milliseconds(2000)) == bytes);
  }
}

TEST_CASE("a fault proxy holds back a message of RESP until it is whole") {
  const TempDir dir;
  Address upstream{dir / "server.sock"};
  const Fd listener = listen_at(upstream);
  FaultProxy proxy(upstream);
  const Fd client = connect_to(proxy.address());
  const Fd server(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  REQUIRE(send_all(client.get(), "*1\r\n$4\r\nPI"));
  CHECK(receive_some(server.get(), milliseconds(50)).empty());
  REQUIRE(send_all(client.get(), "NG\r\n"));
  CHECK(receive_some(server.get()) == "*1\r\n$4\r\nPING\r\n");
  REQUIRE(send_all(server.get(), "+PONG\r\n"));
  CHECK(receive_some(client.get()) == "+PONG\r\n");
}

}  // namespace dlock::test
