#include "redis/stream.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>

#include "base/error.hpp"
#include "redis/resolve.hpp"

namespace dlock {
namespace {

[[noreturn]] void unavailable(const std::string& what) { throw Error(Trouble::unavailable, what); }

[[noreturn]] void unavailable_errno(const std::string& doing, int error) {
  unavailable(doing + ": " + std::strerror(error));
}

/// Waits for `events` on `fd`; false at the deadline.
bool ready(int fd, short events, const Patience& patience) {
  pollfd fds[] = {{fd, events, 0}, {patience.interrupt_fd, POLLIN, 0}};
  if (poll_until(fds, patience.deadline) == 0) return false;
  if (fds[0].revents == 0) throw Error(Trouble::interrupted, "interrupted");
  return true;
}

/// connect(2): 0 or errno. A Unix socket whose backlog is full answers EAGAIN at once, and is tried
/// again until the deadline.
int begin_connect(const Fd& socket, const SocketAddress& address, const Patience& patience) {
  constexpr milliseconds pause{2};
  const auto* to = reinterpret_cast<const sockaddr*>(&address.storage);
  while (true) {
    if (::connect(socket.get(), to, address.length) == 0) return 0;
    const int error = errno;
    const Deadline again = later(BootClock::now(), pause);
    if (error != EAGAIN || again >= patience.deadline) return error;
    if (ready(patience.interrupt_fd, POLLIN, {again, -1})) {
      throw Error(Trouble::interrupted, "interrupted");
    }
  }
}

/// 0, or the errno of the failed attempt; ETIMEDOUT at the deadline.
int try_connect(const Fd& socket, const SocketAddress& address, const Patience& patience) {
  const int begun = begin_connect(socket, address, patience);
  if (begun != EINPROGRESS) return begun;
  if (!ready(socket.get(), POLLOUT, patience)) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

SocketAddress unix_address(const std::string& path) {
  SocketAddress address;
  auto* to = reinterpret_cast<sockaddr_un*>(&address.storage);
  if (path.size() >= sizeof to->sun_path) {
    unavailable("the path of the socket is longer than " + std::to_string(sizeof to->sun_path - 1) +
                " bytes");
  }
  to->sun_family = AF_UNIX;
  std::memcpy(to->sun_path, path.c_str(), path.size() + 1);
  address.length = sizeof *to;
  return address;
}

/// A peer that vanished without a word is noticed by the kernel within half a minute, so that a
/// waiter does not sit on a dead connection.
void tune_tcp(const Fd& socket) {
  const auto set = [&](int level, int name, int value) {
    setsockopt(socket.get(), level, name, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 15);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

}  // namespace

Stream Stream::connect(const Endpoint& endpoint, const Patience& patience) {
  const auto addresses = endpoint.is_unix() ? std::vector{unix_address(endpoint.socket_path)}
                                            : resolve(endpoint.host, endpoint.port, patience);
  int error = 0;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const int family = addresses[i].storage.ss_family;
    Fd socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket && errno != EAFNOSUPPORT) throw_errno("socket");
    if (!socket) {
      error = EAFNOSUPPORT;
      continue;
    }
    if (family != AF_UNIX) tune_tcp(socket);
    const auto share = left_until(patience.deadline) / static_cast<int>(addresses.size() - i);
    const Deadline until = patience.deadline == never ? never : later(BootClock::now(), share);
    error = try_connect(socket, addresses[i], {until, patience.interrupt_fd});
    if (error == 0) return Stream(std::move(socket));
  }
  if (error == ETIMEDOUT) unavailable("no answer to the attempt to connect");
  unavailable_errno("cannot connect", error);
}

void Stream::await(short events, const Patience& patience, const char* doing) {
  if (!ready(socket_.get(), events, patience)) unavailable(std::string("no answer ") + doing);
}

bool Stream::has_ended() const {
  char next = 0;
  const auto got = recv(socket_.get(), &next, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

void Stream::send(std::string_view bytes, const Patience& patience) {
  while (!bytes.empty()) {
    const auto sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN || errno == EINTR) {
      await(POLLOUT, patience, "while sending");
    } else {
      unavailable_errno("the connection broke", errno);
    }
  }
}

std::string Stream::receive(const Patience& patience) {
  std::array<char, 16 * 1024> buffer;
  while (true) {
    const auto got = recv(socket_.get(), buffer.data(), buffer.size(), 0);
    if (got > 0) return std::string(buffer.data(), static_cast<std::size_t>(got));
    if (got == 0) unavailable("the server closed the connection");
    if (errno != EAGAIN && errno != EINTR) unavailable_errno("the connection broke", errno);
    await(POLLIN, patience, "in time");
  }
}

}  // namespace dlock
