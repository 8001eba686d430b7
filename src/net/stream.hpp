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

/// A connected byte stream to a server over TCP or a Unix socket, in plain text or with TLS. Every
/// call has a deadline and can be interrupted. A failure is Error{unavailable} or, from TLS,
/// Error{denied}; the stream must not be used after it.
class Stream {
 public:
  /// Tries every address of the host, each for its share of the remaining time. With TLS, the
  /// handshake is part of that time, and an unusable file in the TLS settings throws Error{usage}.
  static Stream connect(const Endpoint& endpoint, const CallOptions& call_options);

  /// Whether the peer is known to have closed the stream; bytes that arrived before can still be
  /// read.
  bool has_ended();
  void send(std::string_view bytes, const CallOptions& call_options);
  /// Returns at least one byte; throws at the end of the stream.
  std::string receive(const CallOptions& call_options);
  int fd() const { return socket_.get(); }
  /// Returns nothing for plain text.
  std::optional<TlsFacts> tls_facts() const;

 private:
  Stream(Fd socket, const SocketAddress& peer) : socket_(std::move(socket)), peer_(peer) {}
  /// Returns a stream without a descriptor, and sets `error`, if the connection fails.
  static Stream open(const SocketAddress& address, const CallOptions& call_options, int& error);
  static Stream open_any(const Endpoint& endpoint, const CallOptions& call_options);

  // These functions transfer the bytes of the socket, without TLS.

  /// Sends to_send_; returns false if the connection has ended.
  bool flush(const CallOptions& call_options);
  /// Returns the bytes that have arrived, after a wait if there are none; empty at the end of the
  /// connection. `awaited` completes the message at the deadline: "no answer in time".
  std::string take(const CallOptions& call_options, const char* awaited);
  /// Returns the bytes that are there now, without waiting.
  std::string take_arrived();
  void set_broken(int error);

  void shake_hands(const CallOptions& call_options);
  /// Throws if the server speaks plain text and so would never answer the handshake.
  void look_for_plain_text(const CallOptions& call_options) const;
  [[noreturn]] void ended(const CallOptions& call_options);
  [[noreturn]] void ended_in_tls();
  std::string probe(std::string_view bytes, const CallOptions& call_options) const;

  Fd socket_;
  SocketAddress peer_;
  bool at_end_ = false;  ///< a read or a write has found the connection closed or broken
  std::string broke_;    ///< the error that broke the connection; empty if it is open or was closed
  std::unique_ptr<TlsSession> tls_;
  std::string to_send_;  ///< not yet accepted by the socket
  std::string arrived_;  ///< not yet returned by receive()
  bool heard_ = false;   ///< the server has sent something
};

}  // namespace dlock
