#include "support/database_server.hpp"

#include "support/sockets.hpp"

namespace dlock::test {

int unused_port() {
  Address any{"", 0};
  const Fd held = bind_to(any);
  return any.port;
}

}  // namespace dlock::test
