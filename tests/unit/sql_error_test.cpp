#include "sql/sql_backend.hpp"

#include <doctest/doctest.h>

#include <string>
using namespace dlock;

namespace {

void check_kind(ErrorKind kind, std::initializer_list<const char*> texts) {
  for (const std::string text : texts) {
    CAPTURE(text);
    CHECK(tls_error(text, text).kind() == kind);
  }
}

}  // namespace

TEST_CASE("a connection that breaks in a TLS handshake is an error that may pass") {
  check_kind(ErrorKind::unavailable,
             {"TLS/SSL error: Connection reset by peer (104)",
              "TLS/SSL error: unexpected eof while reading", "TLS/SSL error: wrong version number",
              "TLS/SSL error: No such file or directory (2)",
              "TLS/SSL error: SSL is required, but the server does not support it",
              "connection to server at \"127.0.0.1\", port 1 failed: SSL SYSCALL error: EOF "
              "detected",
              "could not translate host name \"a\" to address: Name or service not known",
              "could not translate host name \"a\" to address: No address associated with hostname",
              "server does not support SSL, but SSL was required"});
}

TEST_CASE("an alert of TLS is a refusal where it tells of a certificate or a name") {
  check_kind(ErrorKind::denied,
             {"SSL error: tlsv1 alert unknown ca", "TLS/SSL error: sslv3 alert certificate expired",
              "SSL error: tlsv13 alert certificate required", "SSL error: tlsv1 unrecognized name",
              "fatal alert received: CA is unknown: unknown certificate"});
  check_kind(
      ErrorKind::unavailable,
      {"TLS/SSL error: tlsv1 alert internal error", "SSL error: sslv3 alert handshake failure",
       "SSL error: tlsv1 alert protocol version; This may indicate that the server does not "
       "support any SSL protocol version between TLSv1.2 and TLSv1.3."});
}

TEST_CASE("a certificate that is not trusted, or is another's, is a refusal") {
  check_kind(ErrorKind::denied,
             {"TLS/SSL error: unable to get local issuer certificate",
              "TLS/SSL error: certificate has expired",
              "TLS/SSL error: Validation of SSL server certificate failed",
              "TLS/SSL error: Fingerprint validation of peer certificate failed",
              "TLS/SSL error: hostname mismatch", "TLS/SSL error: Hostname verification failed",
              "connection to server at \"a\" (127.0.0.1), port 1 failed: SSL error: certificate "
              "verify failed",
              "server certificate for \"elsewhere.test\" (and 1 other name) does not match host "
              "name \"127.0.0.2\""});
}

TEST_CASE("a file for TLS that is missing or wrong is wrong usage") {
  check_kind(
      ErrorKind::usage,
      {"root certificate file \"/nowhere\" does not exist; Either provide the file or change "
       "sslmode to disable server certificate verification.",
       "could not read root certificate file \"/etc/hostname\": no certificate or crl found",
       "could not load private key file \"/k.pem\": key values mismatch",
       "TLS/SSL error: no certificate or crl found", "TLS/SSL error: key values mismatch"});
}

TEST_CASE("the name of a host or a file does not make a TLS error a refusal") {
  check_kind(ErrorKind::unavailable,
             {"connection to server at \"certificate.test\" (127.0.0.1), port 1 failed: SSL "
              "SYSCALL error: EOF detected"});
}

TEST_CASE("a certificate that OpenSSL does not accept for a rare reason is a refusal, too") {
  check_kind(ErrorKind::denied, {"TLS/SSL error: CA signature digest algorithm too weak",
                                 "TLS/SSL error: path length constraint exceeded",
                                 "TLS/SSL error: unhandled critical extension"});
}
