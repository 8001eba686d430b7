#include "support/sockets.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.hpp"
#include "base/wait.hpp"

namespace dlock::test {
namespace {

struct SocketName {
  sockaddr_storage bytes{};
  socklen_t size = 0;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&bytes); }
};

SocketName name_of(const Address& address) {
  SocketName name;
  if (address.path.empty()) {
    auto& in = reinterpret_cast<sockaddr_in&>(name.bytes);
    in.sin_family = AF_INET;
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    in.sin_port = htons(static_cast<std::uint16_t>(address.port));
    name.size = sizeof in;
    return name;
  }
  auto& un = reinterpret_cast<sockaddr_un&>(name.bytes);
  un.sun_family = AF_UNIX;
  if (address.path.size() >= sizeof un.sun_path) {
    throw Error(ErrorKind::bug, "socket path too long: " + address.path);
  }
  std::memcpy(un.sun_path, address.path.data(), address.path.size());
  name.size = sizeof un;
  return name;
}

Fd stream_socket(const Address& address) {
  Fd fd(socket(address.path.empty() ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) throw_errno("socket");
  const int on = 1;
  if (address.path.empty()) {
    setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  return fd;
}

}  // namespace

std::string Address::url() const {
  return path.empty() ? "redis://127.0.0.1:" + std::to_string(port) : "unix://" + path;
}

Fd bind_to(Address& address) {
  Fd fd = stream_socket(address);
  if (address.path.empty()) {
    const int on = 1;
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  } else {
    unlink(address.path.c_str());
  }
  SocketName name = name_of(address);
  if (bind(fd.get(), name.get(), name.size) < 0) throw_errno("bind " + address.url());
  if (address.path.empty()) {
    getsockname(fd.get(), name.get(), &name.size);
    address.port = ntohs(reinterpret_cast<const sockaddr_in&>(name.bytes).sin_port);
  }
  return fd;
}

Fd listen_at(Address& address) {
  Fd fd = bind_to(address);
  if (listen(fd.get(), 512) < 0) throw_errno("listen " + address.url());
  return fd;
}

Fd connect_to(const Address& address) {
  Fd fd = stream_socket(address);
  SocketName name = name_of(address);
  if (connect(fd.get(), name.get(), name.size) < 0) fd.reset();
  return fd;
}

bool send_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno == EAGAIN) {
      pollfd room{fd, POLLOUT, 0};
      poll_until({&room, 1}, never);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

std::string receive_some(int fd, milliseconds within) {
  pollfd ready{fd, POLLIN, 0};
  if (poll_until({&ready, 1}, later(BootClock::now(), within)) == 0) return "";
  char block[65536];
  const ssize_t n = recv(fd, block, sizeof block, 0);
  return n > 0 ? std::string(block, static_cast<std::size_t>(n)) : "";
}

void reset_connection(Fd& fd) {
  const linger at_once{1, 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  fd.reset();
}

}  // namespace dlock::test
