#pragma once

#include "base/endpoint.hpp"
#include "net/openssl.hpp"

namespace dlock {

/// Returns a context that trusts the authorities of `settings` and has the client's certificate, if
/// there is one. Throws Error{usage} about a wrong file, with its name and the kind of data in it;
/// or Error{unavailable} if all files were good before in this process, because the file is being
/// replaced. Any thread may call it.
OpenSslPtr<SSL_CTX> client_context(const TlsSettings& settings);

}  // namespace dlock
