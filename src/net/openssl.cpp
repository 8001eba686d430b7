#include "net/openssl.hpp"

#ifndef DLOCK_OPENSSL_INSIDE
#include <string>

#include "base/shared_library.hpp"
#endif

static_assert(OPENSSL_VERSION_MAJOR >= 3, "libssl 3 or newer");

namespace dlock {
namespace {

#ifdef DLOCK_OPENSSL_INSIDE

OpenSsl find() {
  OpenSsl linked{};
#define DLOCK_OPENSSL_LINK(name) linked.name = &::name;
  DLOCK_OPENSSL_FUNCTIONS(DLOCK_OPENSSL_LINK)
#undef DLOCK_OPENSSL_LINK
  return linked;
}

#else

OpenSsl find() {
  // The version whose headers this was compiled with. libcrypto comes along with it, and a name
  // that is not in the one is looked for in the other.
  const SharedLibrary library("libssl.so." + std::to_string(OPENSSL_SHLIB_VERSION),
                              "TLS needs OpenSSL, on Debian the package libssl3 or libssl3t64");
  OpenSsl loaded{};
#define DLOCK_OPENSSL_LOAD(name) library.find(#name, loaded.name);
  DLOCK_OPENSSL_FUNCTIONS(DLOCK_OPENSSL_LOAD)
#undef DLOCK_OPENSSL_LOAD
  return loaded;
}

#endif

OpenSsl load() {
  const OpenSsl found = find();
  // Its words for all that libcrypto may meet take 0.2 MB of each waiter; what we let it meet are
  // files that turn out to be damaged.
  found.OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CRYPTO_STRINGS, nullptr);
  return found;
}

}  // namespace

const OpenSsl& openssl() {
  static const OpenSsl functions = load();
  return functions;
}

}  // namespace dlock
