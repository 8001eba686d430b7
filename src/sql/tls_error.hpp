#pragma once

#include <string_view>

#include "base/error.hpp"

namespace dlock {

/// The kind of a TLS error of which the client library of a database gives nothing but a text, its
/// own or OpenSSL's: the same as where TLS is dlock's own (net/tls.hpp). Usage: a file of this host
/// is missing or wrong. Denied: one side does not accept the certificate or the name of the other.
/// All else is unavailable, for it may pass: a waiter goes on.
ErrorKind tls_error_kind(std::string_view said);

}  // namespace dlock
