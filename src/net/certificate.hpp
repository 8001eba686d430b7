#pragma once

#include <string>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "net/openssl.hpp"

namespace dlock {

/// `CN=db1,O=Example`, escaped; `(no name)` where there is none.
std::string text_of(const X509_NAME* name);

/// What a certificate is for, as it lists it: `DNS:db1, IP Address:10.0.0.7`; without such a list
/// its subject. Escaped, and cut where it gets long.
std::string names_in(const X509* certificate);

WallTime wall_time(const ASN1_TIME* time);
/// `2026-01-02T03:04:05Z`
std::string text_of(const ASN1_TIME* time);

/// Why verifying the server's certificate failed, as `context` holds it inside a verify callback,
/// and what to do. `expected` is the name or address that was asked for, `ca` the setting.
Error refusal_in(X509_STORE_CTX* context, const std::string& expected, const std::string& ca);

}  // namespace dlock
