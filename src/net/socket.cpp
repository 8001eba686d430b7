#include "net/socket.hpp"

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
#include "base/wait.hpp"

namespace dlock {
namespace {

[[noreturn]] void cannot_connect(int error) {
  if (error == ETIMEDOUT) throw_unavailable("no answer to the attempt to connect");
  throw_unavailable(std::string("cannot connect: ") + std::strerror(error));
}

/// Whether this machine has no way to such an address, which tells nothing of the server.
bool has_no_way(int error) {
  return error == EAFNOSUPPORT || error == EADDRNOTAVAIL || error == ENETUNREACH;
}

/// Waits for `events` on `fd`; false at the deadline.
bool ready(int fd, short events, const CallOptions& call_options) {
  pollfd fds[] = {{fd, events, 0}, {call_options.cancel_fd, POLLIN, 0}};
  if (poll_until(fds, call_options.deadline) == 0) return false;
  if (fds[0].revents == 0) throw_interrupted();
  return true;
}

/// connect(2): 0 or errno. A Unix socket whose backlog is full answers EAGAIN at once, and is tried
/// again until the deadline.
int begin_connect(const Fd& socket, const SocketAddress& address, const CallOptions& call_options) {
  constexpr milliseconds pause{2};
  const auto* to = reinterpret_cast<const sockaddr*>(&address.storage);
  while (true) {
    if (::connect(socket.get(), to, address.length) == 0) return 0;
    const int error = errno;
    const Deadline again = later(BootClock::now(), pause);
    if (error != EAGAIN || again >= call_options.deadline) return error;
    if (sleep_until(again, call_options.cancel_fd)) throw_interrupted();
  }
}

/// Whether both ends are this socket. Where nobody listens at a port that the system gives out to
/// clients, it may give that very port to the one that connects, which then hears itself.
bool is_connected_to_itself(const Fd& socket) {
  SocketAddress own;
  SocketAddress peer;
  own.length = peer.length = sizeof own.storage;
  const auto at = [](SocketAddress& address) {
    return reinterpret_cast<sockaddr*>(&address.storage);
  };
  if (getsockname(socket.get(), at(own), &own.length) != 0) return false;
  if (getpeername(socket.get(), at(peer), &peer.length) != 0) return false;
  return own.length == peer.length && std::memcmp(&own.storage, &peer.storage, own.length) == 0;
}

/// 0, or the errno of the failed attempt; ETIMEDOUT at the deadline.
int try_connect(const Fd& socket, const SocketAddress& address, const CallOptions& call_options) {
  const int begun = begin_connect(socket, address, call_options);
  if (begun != EINPROGRESS) return begun;
  if (!ready(socket.get(), POLLOUT, call_options)) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

SocketAddress unix_address(const std::string& path) {
  SocketAddress address;
  auto* to = reinterpret_cast<sockaddr_un*>(&address.storage);
  if (path.size() >= sizeof to->sun_path) {
    throw_unavailable("the path of the socket is longer than " +
                      std::to_string(sizeof to->sun_path - 1) + " bytes");
  }
  to->sun_family = AF_UNIX;
  std::memcpy(to->sun_path, path.c_str(), path.size() + 1);
  address.length = sizeof *to;
  return address;
}

/// A peer that vanished without a word is noticed by the kernel within half a minute, so that a
/// waiter does not sit on a dead connection. No fast open: what goes with a SYN may arrive twice
/// (RFC 7413, 6.1), and an acquire that comes again after its release is a lock of nobody.
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

/// Without a descriptor, and with `error`, where that did not come about.
Socket Socket::open(const SocketAddress& address, const CallOptions& call_options, int& error) {
  const int family = address.storage.ss_family;
  Fd socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket && errno != EAFNOSUPPORT) throw_errno("socket");
  error = EAFNOSUPPORT;
  if (socket) {
    if (family != AF_UNIX) tune_tcp(socket);
    error = try_connect(socket, address, call_options);
    if (error == 0 && family != AF_UNIX && is_connected_to_itself(socket)) error = ECONNREFUSED;
  }
  if (error != 0) socket.reset();
  return {std::move(socket), address};
}

Socket Socket::connect(const Endpoint& endpoint, const CallOptions& call_options) {
  const auto addresses = endpoint.is_unix() ? std::vector{unix_address(endpoint.socket_path)}
                                            : resolve(endpoint.host, endpoint.port, call_options);
  int told = 0;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    int error = 0;
    Socket socket = open(addresses[i], share_of(call_options, addresses.size() - i), error);
    if (error == 0) return socket;
    if (told == 0 || !has_no_way(error)) told = error;
  }
  cannot_connect(told);
}

Socket Socket::again(const CallOptions& call_options) const {
  int error = 0;
  Socket socket = open(peer_, call_options, error);
  if (error != 0) cannot_connect(error);
  return socket;
}

bool Socket::has_ended() const {
  char next = 0;
  const auto got = recv(fd_.get(), &next, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

bool Socket::readable_by(Deadline until, int cancel_fd) const {
  return ready(fd_.get(), POLLIN, {until, cancel_fd});
}

std::string Socket::receive(const CallOptions& call_options, const char* awaited) {
  while (true) {
    std::string bytes = receive_arrived();
    if (!bytes.empty() || at_end_) return bytes;
    if (!ready(fd_.get(), POLLIN, call_options))
      throw_unavailable(std::string("no answer ") + awaited);
  }
}

std::string Socket::receive_arrived() {
  std::array<char, 16 * 1024> buffer;
  const auto got = recv(fd_.get(), buffer.data(), buffer.size(), 0);
  if (got > 0) return std::string(buffer.data(), static_cast<std::size_t>(got));
  if (got == 0) at_end_ = true;
  if (got < 0 && errno != EAGAIN && errno != EINTR) set_broken(errno);
  return "";
}

bool Socket::send(std::string& bytes, const CallOptions& call_options) {
  while (!bytes.empty()) {
    const auto sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      bytes.erase(0, static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN || errno == EINTR) {
      if (!ready(fd_.get(), POLLOUT, call_options)) throw_unavailable("no answer while sending");
    } else {
      set_broken(errno);
      return false;
    }
  }
  return true;
}

void Socket::send_now(std::string_view bytes) const {
  // Whether it arrives changes nothing here.
  (void)!::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

void Socket::set_broken(int error) {
  at_end_ = true;
  broke_ = std::string("the connection broke: ") + std::strerror(error);
}

}  // namespace dlock
