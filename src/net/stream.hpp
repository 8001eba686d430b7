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

/// A connected TCP or Unix socket, used by Stream. Every call has a deadline and can be
/// interrupted; it then throws Error{unavailable} or Error{interrupted}.
class Socket {
 public:
  /// Tries every address the host resolves to, each for its share of the time left.
  static Socket connect(const Endpoint& endpoint, const CallOptions& call_options);
  /// Another one, to the address this one leads to.
  Socket again(const CallOptions& call_options) const;

  /// Whether the peer is known to have closed the connection; bytes that arrived before can still
  /// be read.
  bool has_ended() const;
  /// Waits until `until`; returns whether there are bytes to read or the connection has ended.
  bool readable_by(Deadline until, int cancel_fd) const;
  /// Returns the bytes that have arrived, after a wait if there are none; empty at the end of the
  /// connection. `awaited` completes the message at the deadline: "no answer in time".
  std::string receive(const CallOptions& call_options, const char* awaited);
  /// Returns the bytes that are there now, without waiting.
  std::string receive_arrived();
  /// Sends `bytes` and removes what was sent from its front; returns false if the connection has
  /// ended.
  bool send(std::string& bytes, const CallOptions& call_options);
  /// Sends a last message without waiting, if there is room for it.
  void send_now(std::string_view bytes) const;

  int fd() const { return fd_.get(); }
  bool is_tcp() const { return peer_.storage.ss_family != AF_UNIX; }
  /// Whether receiving or sending has met the end of the connection.
  bool at_end() const { return at_end_; }
  /// Why the connection broke, for people; empty if it is open or the peer just closed it.
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

/// A connected byte stream to a server, in plain text or with TLS. Every call has a deadline and
/// can be interrupted. A failure is Error{unavailable} or, from TLS, Error{denied}; the stream must
/// not be used after it.
class Stream {
 public:
  /// Connects, and with TLS does the handshake, within the same time. Throws Error{usage} too,
  /// about files that the settings of TLS name.
  static Stream connect(const Endpoint& endpoint, const CallOptions& call_options);

  /// Whether the peer is known to have closed the stream; bytes that arrived before can still be
  /// read.
  bool has_ended();
  void send(std::string_view bytes, const CallOptions& call_options);
  /// Returns at least one byte; throws at the end of the stream.
  std::string receive(const CallOptions& call_options);
  int fd() const { return socket_.fd(); }
  /// Returns nothing for plain text.
  std::optional<TlsFacts> tls_facts() const;

 private:
  explicit Stream(Socket socket) : socket_(std::move(socket)) {}
  void shake_hands(const CallOptions& call_options);
  /// Throws if the server speaks plain text and so would never answer the handshake.
  void look_for_plain_text(const CallOptions& call_options) const;
  [[noreturn]] void ended(const CallOptions& call_options);
  [[noreturn]] void ended_in_tls();
  std::string probe(std::string_view bytes, const CallOptions& call_options) const;

  Socket socket_;
  std::unique_ptr<TlsSession> tls_;
  std::string to_send_;  ///< not yet accepted by the socket
  std::string arrived_;  ///< not yet returned by receive()
  bool heard_ = false;   ///< the server has sent something
};

}  // namespace dlock
