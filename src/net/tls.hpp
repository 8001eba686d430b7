#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "base/endpoint.hpp"
#include "base/error.hpp"
#include "net/openssl.hpp"

namespace dlock {

/// For people: the server answers in plain text.
inline constexpr const char* speaks_no_tls =
    "it does not speak TLS: where that is meant, write redis:// in place of rediss://";

/// The facts of an open TLS connection; texts are escaped.
struct TlsFacts {
  std::string version;                  ///< `TLSv1.3`
  std::string cipher;                   ///< `TLS_AES_256_GCM_SHA384`
  std::string subject;                  ///< of the server's certificate: `CN=db1,O=Example`
  WallTime expires;                     ///< the server's certificate
  std::optional<WallTime> own_expires;  ///< the client's certificate, if there is one
};

/// The client's side of one TLS connection, without a socket: bytes in, bytes out. Used by Stream.
/// TLS 1.2 or newer; the server's certificate and name are always verified. A failure is
/// Error{denied} where one side does not trust the other, else {unavailable}.
///
/// It sends no close_notify: after a fork two processes have the connection, and the one that
/// lets go of it must not end it for the other.
class TlsSession {
 public:
  /// Throws Error{usage} about files of the settings, {host_refused} without OpenSSL.
  explicit TlsSession(const Endpoint& endpoint);
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  /// The bytes that the server has sent.
  void arrive(std::string_view bytes);
  /// The bytes that are to be sent to it.
  std::string outgoing();

  /// Goes on with the handshake as far as the bytes reach; true once it is done.
  bool shake_hands();
  void write(std::string_view plain);
  /// The bytes that have arrived, decrypted; empty if there is nothing whole.
  std::string read();
  /// Whether the server has said that it sends no more.
  bool is_closed() const { return closed_; }

  /// What it means that the connection has ended here; `broke` says how where it did not just end.
  Error ended(const std::string& broke) const;
  TlsFacts facts() const;

 private:
  struct Callbacks;
  void expect_name();
  Error failure() const;
  Error alerted(int alert) const;
  bool may_want_certificate() const;

  TlsSettings settings_;
  std::string expected_;  ///< the name or address the server must prove
  OpenSslPtr<SSL_CTX> context_;
  OpenSslPtr<SSL> ssl_;
  BIO* in_ = nullptr;  ///< of ssl_
  BIO* out_ = nullptr;
  std::optional<Error> refusal_;  ///< why its certificate was refused, where it was
  bool heard_ = false;
  bool plain_ = false;  ///< what came first is not TLS
  bool shaken_ = false;
  bool asked_ = false;     ///< for a certificate that we have not
  bool accepted_ = false;  ///< the server went on behind the handshake
  bool closed_ = false;
};

}  // namespace dlock
