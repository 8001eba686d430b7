#pragma once

#include <string>
#include <string_view>

#include "base/clock.hpp"
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

}  // namespace dlock::test
