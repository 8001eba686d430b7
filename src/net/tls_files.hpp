#pragma once

#include "base/endpoint.hpp"
#include "net/openssl.hpp"

namespace dlock {

/// Makes `context` trust what the settings say and show the client's certificate, if there is one.
/// Throws Error{usage} where a file holds something else, with its name and what it holds.
void load_files(SSL_CTX* context, const TlsSettings& settings);

}  // namespace dlock
