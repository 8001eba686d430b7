#include "net/digest.hpp"

#include "base/error.hpp"
#include "base/text.hpp"
#include "net/openssl.hpp"

namespace dlock {

std::string sha256_hex(std::string_view bytes) {
  std::string digest(32, '\0');
  const OpenSsl& library = openssl();
  if (library.EVP_Digest(bytes.data(), bytes.size(),
                         reinterpret_cast<unsigned char*>(digest.data()), nullptr,
                         library.EVP_sha256(), nullptr) != 1) {
    throw Error(ErrorKind::host_refused, "OpenSSL does not compute SHA-256 on this host");
  }
  return hex(digest);
}

}  // namespace dlock
