#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "base/endpoint.hpp"
#include "base/error.hpp"
#include "net/openssl.hpp"

namespace dlock {

/// The message if the server answers in plain text.
inline constexpr const char* speaks_no_tls =
    "it does not speak TLS: where that is meant, write redis:// in place of rediss://";

/// The facts of an open TLS connection.
struct TlsFacts {
  std::string version;  ///< `TLSv1.3`
  WallTime expires;     ///< the first end of a certificate: the server's or, if any, the client's
};

/// Returns a context that trusts the authorities of `settings` and has the client's certificate, if
/// there is one. Throws Error{usage} that names a wrong file and its fault; or Error{unavailable}
/// if all files were good before in this process, because the file is being replaced. Any thread
/// may call it.
OpenSslPtr<SSL_CTX> client_context(const TlsSettings& settings);

/// The client side of one TLS connection, without a socket: Stream passes bytes in and out. TLS 1.2
/// or newer; the server's certificate and name are always verified. A failure is Error{denied} if
/// one side does not trust the other, otherwise Error{unavailable}.
///
/// A session sends no close_notify: after a fork two processes share the connection, and the one
/// that closes its copy must not end the connection for the other.
class TlsSession {
 public:
  /// Throws Error{usage} about a TLS setting, and Error{host_refused} if OpenSSL is not installed.
  explicit TlsSession(const Endpoint& endpoint);
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  /// Takes bytes that the server has sent.
  void arrive(std::string_view bytes);
  /// Returns the bytes to send to the server.
  std::string outgoing();

  /// Continues the handshake with the bytes that have arrived; returns true once it is done.
  bool shake_hands();
  void write(std::string_view plain);
  /// Returns the decrypted bytes that have arrived; empty if no record is complete.
  std::string read();
  /// Whether the server has sent a close_notify.
  bool is_closed() const { return closed_; }

  /// The Error for an end of the connection at this point; `broke` says how it broke, and is empty
  /// if the server just closed it.
  Error ended(const std::string& broke) const;
  TlsFacts facts() const;

 private:
  struct Callbacks;
  void expect_name();
  Error failure() const;
  Error alerted(int alert) const;
  bool may_want_certificate() const;

  TlsSettings settings_;
  std::string expected_;  ///< the name or address that the server must prove
  OpenSslPtr<SSL_CTX> context_;
  OpenSslPtr<SSL> ssl_;
  BIO* in_ = nullptr;  ///< owned by ssl_, like out_
  BIO* out_ = nullptr;
  std::optional<Error> refusal_;  ///< why the server's certificate was refused
  bool heard_ = false;
  bool plain_ = false;  ///< the first bytes were not TLS
  bool shaken_ = false;
  bool asked_ = false;     ///< the server wants a client certificate, and there is none
  bool accepted_ = false;  ///< the server has answered after the handshake
  bool closed_ = false;
};

}  // namespace dlock
