#pragma once

#include "base/endpoint.hpp"
#include "net/openssl.hpp"

namespace dlock {

/// A context that trusts what the settings say and shows the client's certificate, if there is one.
/// Throws Error{usage} where a file holds something else, with its name and what it holds; but
/// {unavailable} once all files were good in this process, for then it is being replaced. Called by
/// any thread.
OpenSslPtr<SSL_CTX> client_context(const TlsSettings& settings);

}  // namespace dlock
