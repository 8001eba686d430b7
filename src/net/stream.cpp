#include "net/stream.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "base/wait.hpp"

namespace dlock {
namespace {

/// Whether connect(2) failed only because this machine has no route to the address.
bool has_no_way(int error) {
  return error == EAFNOSUPPORT || error == EADDRNOTAVAIL || error == ENETUNREACH;
}

/// Waits for `events` on `fd`; returns false at the deadline.
bool ready(int fd, short events, const CallOptions& call_options) {
  pollfd fds[] = {{fd, events, 0}, {call_options.cancel_fd, POLLIN, 0}};
  if (poll_until(fds, call_options.deadline) == 0) return false;
  if (fds[0].revents == 0) throw_interrupted();
  return true;
}

/// Calls connect(2); returns 0 or errno. A Unix socket with a full backlog answers EAGAIN at once:
/// begin_connect() then calls connect(2) again until the deadline.
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

/// Whether both ends are this socket. If no server listens on a port of the ephemeral range, the
/// system may give that port to the connecting client, which then connects to itself.
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

/// Returns 0, or the errno of the failed attempt; ETIMEDOUT at the deadline.
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

/// With keepalive the kernel notices a vanished peer within half a minute, so that a waiter does
/// not wait on a dead connection. TCP fast open stays off: data in a SYN may arrive twice (RFC
/// 7413, 6.1), and an acquire that arrives again after its release takes a lock that nobody uses.
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

using namespace std::string_view_literals;

/// Throws at the deadline, even while the server still sends messages without data, such as
/// HelloRequests and tickets.
void check_time(const CallOptions& call_options, const char* awaited) {
  if (left_until(call_options.deadline) == milliseconds(0)) {
    throw_unavailable(std::string("no answer ") + awaited);
  }
}

/// A minimal ClientHello (RFC 5246, 7.4.1.2): TLS 1.2, a random of zeros, one cipher suite.
constexpr auto client_hello =
    "\x16\x03\x01\x00\x2d\x01\x00\x00\x29\x03\x03"
    "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
    "\x00\x00\x02\x00\x2f\x01\x00"sv;

/// Whether `bytes` begin like an alert or a handshake of any version of TLS.
bool looks_like_tls(std::string_view bytes) {
  return bytes.starts_with("\x15\x03") || bytes.starts_with("\x16\x03");
}

constexpr const char* server_closed = "the server closed the connection";
constexpr const char* write_rediss = "it speaks TLS: write rediss:// in place of redis://";

}  // namespace

Stream Stream::open(const SocketAddress& address, const CallOptions& call_options, int& error) {
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

Stream Stream::open_any(const Endpoint& endpoint, const CallOptions& call_options) {
  const auto addresses = endpoint.is_unix() ? std::vector{unix_address(endpoint.socket_path)}
                                            : resolve(endpoint.host, endpoint.port, call_options);
  int first_error = 0;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    int error = 0;
    Stream stream = open(addresses[i], share_of(call_options, addresses.size() - i), error);
    if (error == 0) return stream;
    if (first_error == 0 || !has_no_way(error)) first_error = error;
  }
  if (first_error == ETIMEDOUT) throw_unavailable("no answer to the attempt to connect");
  throw_unavailable(std::string("cannot connect: ") + std::strerror(first_error));
}

bool Stream::flush(const CallOptions& call_options) {
  while (!to_send_.empty()) {
    const auto sent = ::send(fd(), to_send_.data(), to_send_.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      to_send_.erase(0, static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN || errno == EINTR) {
      if (!ready(fd(), POLLOUT, call_options)) throw_unavailable("no answer while sending");
    } else {
      set_broken(errno);
      return false;
    }
  }
  return true;
}

std::string Stream::take(const CallOptions& call_options, const char* awaited) {
  while (true) {
    std::string bytes = take_arrived();
    if (!bytes.empty() || at_end_) return bytes;
    if (!ready(fd(), POLLIN, call_options)) throw_unavailable(std::string("no answer ") + awaited);
  }
}

std::string Stream::take_arrived() {
  std::array<char, 16 * 1024> buffer;
  const auto got = recv(fd(), buffer.data(), buffer.size(), 0);
  if (got > 0) return std::string(buffer.data(), static_cast<std::size_t>(got));
  if (got == 0) at_end_ = true;
  if (got < 0 && errno != EAGAIN && errno != EINTR) set_broken(errno);
  return "";
}

void Stream::set_broken(int error) {
  at_end_ = true;
  broke_ = std::string("the connection broke: ") + std::strerror(error);
}

Stream Stream::connect(const Endpoint& endpoint, const CallOptions& call_options) {
  Stream stream = open_any(endpoint, call_options);
  if (endpoint.tls) {
    stream.tls_ = std::make_unique<TlsSession>(endpoint);
    try {
      stream.shake_hands(call_options);
    } catch (const Error& error) {
      if (error.cause() != Cause::none || error.kind() != ErrorKind::unavailable) throw;
      throw_unavailable(error.what(), Cause::tls_interrupted);
    }
  }
  return stream;
}

void Stream::shake_hands(const CallOptions& call_options) {
  while (true) {
    try {
      // The last bytes of the handshake go out with the first request, in one write.
      if (tls_->shake_hands()) return;
    } catch (const Error&) {
      // Sends the alert, for the server's log, if the socket takes it at once. The handshake has
      // failed already, so a lost alert changes nothing here.
      const std::string alert = tls_->outgoing();
      (void)!::send(fd(), alert.data(), alert.size(), MSG_NOSIGNAL);
      throw;
    }
    to_send_ += tls_->outgoing();
    if (!flush(call_options)) ended_in_tls();
    if (!heard_) look_for_plain_text(call_options);
    const std::string bytes = take(call_options, "to the TLS handshake in time");
    if (bytes.empty()) ended_in_tls();
    heard_ = true;
    tls_->arrive(bytes);
    check_time(call_options, "to the TLS handshake in time");
  }
}

void Stream::look_for_plain_text(const CallOptions& call_options) const {
  // Redis reads a ClientHello as the beginning of a line and waits silently for the rest.
  constexpr milliseconds long_for_a_first_byte{1000};
  const auto quiet = std::min(long_for_a_first_byte, left_until(call_options.deadline) / 2);
  if (ready(fd(), POLLIN, at_most(quiet, call_options))) return;
  const std::string answer = probe("PING\r\n", call_options);
  if (answer.starts_with('+') || answer.starts_with('-'))
    throw_unavailable(speaks_no_tls, Cause::no_tls);
}

/// Sends `bytes` in plain text on a second connection and returns the server's answer, or "" if
/// none comes at once. dlock has not verified the server, so the answer only improves a message.
std::string Stream::probe(std::string_view bytes, const CallOptions& call_options) const {
  constexpr milliseconds at_once{500};
  const auto time = std::min(at_once, left_until(call_options.deadline) / 2);
  const CallOptions brief{later(BootClock::now(), time), call_options.cancel_fd};
  try {
    int error = 0;
    Stream other = open(peer_, brief, error);
    if (error != 0) return "";
    other.to_send_ = bytes;
    other.flush(brief);
    return other.take(brief, "in time");
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::interrupted) throw;
    return "";
  }
}

void Stream::ended(const CallOptions& call_options) {
  if (tls_) ended_in_tls();
  // Redis closes a connection silently if it expects TLS, but there are other reasons to close one.
  const bool mute = !heard_ && peer_.storage.ss_family != AF_UNIX;
  if (mute && looks_like_tls(probe(client_hello, call_options)))
    throw_unavailable(write_rediss, Cause::no_tls);
  throw_unavailable(broke_.empty() ? server_closed : broke_);
}

void Stream::ended_in_tls() {
  const std::string broke = broke_;
  // The reason may have arrived before the connection ended; a failed send does not report it.
  for (auto bytes = take_arrived(); !bytes.empty(); bytes = take_arrived()) {
    tls_->arrive(bytes);
    if (tls_->shake_hands()) tls_->read();
  }
  throw tls_->ended(broke);
}

bool Stream::has_ended() {
  if (!tls_) {
    char next = 0;
    const auto got = recv(fd(), &next, 1, MSG_PEEK | MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
  }
  // The bytes that arrived may be a session ticket or a close_notify; only TLS can tell which.
  constexpr int most_of_an_idle_time = 4;
  try {
    for (int i = 0; i < most_of_an_idle_time && !tls_->is_closed(); ++i) {
      const std::string bytes = take_arrived();
      if (bytes.empty()) return at_end_;
      tls_->arrive(bytes);
      arrived_ += tls_->read();
    }
  } catch (const Error&) {
    return true;
  }
  return tls_->is_closed();
}

void Stream::send(std::string_view bytes, const CallOptions& call_options) {
  if (tls_) {
    tls_->write(bytes);
    to_send_ += tls_->outgoing();
  } else {
    to_send_ += bytes;
  }
  if (flush(call_options)) return;
  // The server may have sent the reason before it closed.
  if (!tls_) arrived_ = take_arrived();
  if (arrived_.empty()) ended(call_options);
}

std::string Stream::receive(const CallOptions& call_options) {
  while (arrived_.empty()) {
    if (tls_ && tls_->is_closed()) throw_unavailable(server_closed);
    std::string bytes = take(call_options, "in time");
    if (bytes.empty()) ended(call_options);
    if (!tls_) {
      if (!heard_ && looks_like_tls(bytes)) throw_unavailable(write_rediss, Cause::no_tls);
      heard_ = true;
      return bytes;
    }
    tls_->arrive(bytes);
    arrived_ = tls_->read();
    // TLS itself may have to answer, for example to an update of the keys.
    to_send_ += tls_->outgoing();
    if (!flush(call_options)) ended(call_options);
    if (arrived_.empty()) check_time(call_options, "in time");
  }
  return std::exchange(arrived_, "");
}

std::optional<TlsFacts> Stream::tls_facts() const {
  if (!tls_) return std::nullopt;
  return tls_->facts();
}

}  // namespace dlock
