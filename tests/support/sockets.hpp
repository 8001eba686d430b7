#pragma once

#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "base/fd.hpp"

namespace dlock::test {

/// Where a server of the tests listens: a path, or a port of 127.0.0.1. What fake servers, the
/// proxy and raw clients share.
struct Address {
  std::string path;
  int port = 0;  ///< used where `path` is empty; 0 picks a free one when listening

  /// `unix:///path` or `redis://127.0.0.1:port`.
  std::string url() const;
};

/// A socket of this name that does not listen; fills in the port it was given. Sockets left at the
/// path are removed.
Fd bind_to(Address& address);

/// The same, and it listens.
Fd listen_at(Address& address);

/// A port of 127.0.0.1 for a server that is told its number. While this lives no other program is
/// given it, also when the server is down: it is bound, and as nobody listens at it here a server
/// may bind it, too (SO_REUSEADDR, which servers ask for).
class UnusedPort {
 public:
  UnusedPort() : held_(bind_to(address_)) {}
  int number() const { return address_.port; }

 private:
  Address address_;
  Fd held_;
};

/// A connected, blocking socket; without a descriptor where nobody listens.
Fd connect_to(const Address& address);

/// Writes all of it, also to a non-blocking socket's far end that reads slowly; false where the
/// far end is gone.
bool send_all(int fd, std::string_view bytes);

/// The next bytes; empty at the end of the stream, after an error, and when nothing came in time.
std::string receive_some(int fd, milliseconds within = milliseconds(10'000));

/// Closes so that a TCP peer gets RST.
void reset_connection(Fd& fd);

}  // namespace dlock::test
