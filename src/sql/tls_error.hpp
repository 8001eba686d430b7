#pragma once

#include <string_view>

#include "base/error.hpp"

namespace dlock {

/// The kind of a TLS error, derived from the message of a database's client library or of OpenSSL,
/// because they supply nothing else. The kinds are those of dlock's own TLS (net/tls.hpp). Usage: a
/// file of this host is missing or wrong. Denied: one side does not accept the certificate or the
/// name of the other. Any other error is unavailable: it may pass, so a waiter goes on.
ErrorKind tls_error_kind(std::string_view said);

}  // namespace dlock
