#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/endpoint.hpp"
#include "base/fd.hpp"
#include "base/wait.hpp"
#include "net/resolve.hpp"
#include "net/tls.hpp"

namespace dlock {

/// A connected socket, TCP or Unix: what Stream moves its bytes through. Every call has a deadline
/// and can be interrupted: Error{unavailable} or {interrupted}.
class Socket {
 public:
  /// Tries every address the host resolves to, each for its share of the time left.
  static Socket connect(const Endpoint& endpoint, const CallOptions& call_options);
  /// Another one, to the address this one leads to.
  Socket again(const CallOptions& call_options) const;

  /// Whether the peer has closed it, as far as is known here; what has arrived may still be read.
  bool has_ended() const;
  /// Whether there is something to read, or the end of it, before `until`.
  bool readable_by(Deadline until, int cancel_fd) const;
  /// The bytes that have arrived; nothing at the end of it. `awaited` is for the
  /// message at the deadline: "no answer in time".
  std::string receive(const CallOptions& call_options, const char* awaited);
  /// The bytes that are there now, without waiting.
  std::string receive_arrived();
  /// Takes what it has sent off the front of `bytes`; false if the connection has ended.
  bool send(std::string& bytes, const CallOptions& call_options);
  /// The same without waiting: a last word, sent if there is room for it.
  void send_now(std::string_view bytes) const;

  int fd() const { return fd_.get(); }
  bool is_tcp() const { return peer_.storage.ss_family != AF_UNIX; }
  /// Whether the end has been met in receiving or sending.
  bool at_end() const { return at_end_; }
  /// The reason why it broke, for people; empty while it goes on and where the peer just closed it.
  const std::string& broke() const { return broke_; }

 private:
  Socket(Fd socket, const SocketAddress& peer) : fd_(std::move(socket)), peer_(peer) {}
  static Socket open(const SocketAddress& address, const CallOptions& call_options, int& error);
  void set_broken(int error);

  Fd fd_;
  SocketAddress peer_;
  bool at_end_ = false;
  std::string broke_;
};

/// A connected byte stream to a server, in plain text or under TLS. Every call has a deadline and
/// can be interrupted; trouble is Error{unavailable} or, of TLS, {denied}, after which the stream
/// is of no further use.
class Stream {
 public:
  /// Connects, and with TLS does the handshake, within the same time. Throws Error{usage} too,
  /// about files that the settings of TLS name.
  static Stream connect(const Endpoint& endpoint, const CallOptions& call_options);

  /// Whether the peer has closed it, as far as is known here; what has arrived may still be read.
  bool has_ended();
  void send(std::string_view bytes, const CallOptions& call_options);
  /// At least one byte; the end of the stream is trouble.
  std::string receive(const CallOptions& call_options);
  int fd() const { return socket_.fd(); }
  /// Nothing in plain text.
  std::optional<TlsFacts> tls_facts() const;

 private:
  explicit Stream(Socket socket) : socket_(std::move(socket)) {}
  void shake_hands(const CallOptions& call_options);
  /// Throws if the server speaks plain text, which a handshake would wait for in vain.
  void look_for_plain_text(const CallOptions& call_options) const;
  [[noreturn]] void ended(const CallOptions& call_options);
  [[noreturn]] void ended_in_tls();
  std::string probe(std::string_view bytes, const CallOptions& call_options) const;

  Socket socket_;
  std::unique_ptr<TlsSession> tls_;
  std::string to_send_;  ///< not yet taken by the socket
  std::string arrived_;  ///< not yet received
  bool heard_ = false;   ///< the server has said something
};

}  // namespace dlock
