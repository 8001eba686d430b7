#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/call_options.hpp"
#include "base/endpoint.hpp"
#include "net/socket.hpp"
#include "net/tls.hpp"

namespace dlock {

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
