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
  // Loads the version whose headers dlock was compiled with. libssl loads libcrypto, so a function
  // that is not in libssl is found in libcrypto.
  const SharedLibrary library("libssl.so." + std::to_string(OPENSSL_SHLIB_VERSION),
                              "TLS needs OpenSSL, on Debian the package libssl3 or libssl3t64");
  OpenSsl loaded{};
#define DLOCK_OPENSSL_LOAD(name) loaded.name = library.find(#name);
  DLOCK_OPENSSL_FUNCTIONS(DLOCK_OPENSSL_LOAD)
#undef DLOCK_OPENSSL_LOAD
  return loaded;
}

#endif

OpenSsl load() {
  const OpenSsl found = find();
  // The error strings of libcrypto take 0.2 MB in each waiter, and dlock needs them only for
  // damaged files.
  found.OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CRYPTO_STRINGS, nullptr);
  return found;
}

}  // namespace

const OpenSsl& openssl() {
  static const OpenSsl functions = load();
  return functions;
}

}  // namespace dlock
