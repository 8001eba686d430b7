#pragma once

#include <string>

namespace dlock {

/// What to do about trouble with a server, told by what server_error() and the TLS session make of
/// it; `otherwise` where they do not say.
std::string advice_on(const std::string& trouble, const char* otherwise);

}  // namespace dlock
