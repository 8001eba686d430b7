#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <list>

#include "base/error.hpp"
#include "base/fd.hpp"

namespace dlock::test {

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

}  // namespace dlock::test
