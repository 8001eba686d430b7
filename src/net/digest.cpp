#include "net/digest.hpp"

#include <array>

#include "base/error.hpp"
#include "net/openssl.hpp"

namespace dlock {

std::string sha256_hex(std::string_view bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::array<unsigned char, 32> digest{};
  const OpenSsl& library = openssl();
  if (library.EVP_Digest(bytes.data(), bytes.size(), digest.data(), nullptr, library.EVP_sha256(),
                         nullptr) != 1) {
    throw Error(ErrorKind::host_refused, "OpenSSL does not compute SHA-256 on this host");
  }
  std::string hex;
  for (const unsigned char byte : digest) hex += {digits[byte >> 4], digits[byte & 15]};
  return hex;
}

}  // namespace dlock
