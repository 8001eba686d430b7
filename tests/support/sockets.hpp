#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <list>
#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/fd.hpp"

namespace dlock::test {

/// The address of a test's server: a path, or a port of 127.0.0.1. Fake servers, the proxy and raw
/// clients share it.
struct Address {
  std::string path;
  int port = 0;  ///< used if `path` is empty; 0 picks a free one when listening

  /// The URL `unix:///path` or `redis://127.0.0.1:port`.
  std::string url() const;
};

/// Binds a socket that does not listen; fills in the port that it got. Removes a socket file left
/// at the path.
Fd bind_to(Address& address);

/// The same, and it listens.
Fd listen_at(Address& address);

/// Reserves a port of 127.0.0.1 for a server that needs its number. No other program gets it, even
/// while the server is down: this socket is bound but does not listen, so the server may bind it as
/// well with SO_REUSEADDR, which servers set.
class UnusedPort {
 public:
  UnusedPort() : held_(bind_to(address_)) {}
  int number() const { return address_.port; }

 private:
  Address address_;
  Fd held_;
};

/// A connected, blocking socket; no descriptor if the connection is refused.
Fd connect_to(const Address& address);

/// Sends all bytes, also to a slow reader; false if the far end is gone.
bool send_all(int fd, std::string_view bytes);

/// The next bytes; empty at the end of the stream, after an error, and after the time.
std::string receive_some(int fd, milliseconds within = milliseconds(10'000));

/// Closes the socket so that a TCP peer gets RST.
void reset_connection(Fd& fd);

/// This port of 127.0.0.2, where connection attempts stay unanswered while the object lives.
class SilentAddress {
 public:
  explicit SilentAddress(int port) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
    address_.sin_port = htons(static_cast<std::uint16_t>(port));
    const Fd& listener = sockets_.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (bind(listener.get(), name(), sizeof address_) != 0) throw_errno("bind");
    if (listen(listener.get(), 0) != 0) throw_errno("listen");
    // These connections are never accepted. The first one fills the queue before this returns.
    for (int i = 0; i < 4; ++i) {
      const int type = SOCK_STREAM | SOCK_CLOEXEC | (i == 0 ? 0 : SOCK_NONBLOCK);
      const Fd& queued = sockets_.emplace_back(socket(AF_INET, type, 0));
      connect(queued.get(), name(), sizeof address_);
    }
  }

 private:
  const sockaddr* name() const { return reinterpret_cast<const sockaddr*>(&address_); }

  sockaddr_in address_{};
  std::list<Fd> sockets_;
};

/// A full pipe without a reader: a write blocks or fails with EAGAIN.
struct FullPipe {
  enum class Writers { block, try_again };

  explicit FullPipe(Writers writers = Writers::block) {
    int ends[2];
    REQUIRE(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
    reader = Fd(ends[0]);
    writer = Fd(ends[1]);
    const char bytes[4096] = {};
    while (write(writer.get(), bytes, sizeof bytes) > 0) {
    }
    if (writers == Writers::block) REQUIRE(fcntl(writer.get(), F_SETFL, 0) == 0);
  }

  Fd reader;
  Fd writer;
};

}  // namespace dlock::test
