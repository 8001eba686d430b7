#include "base/random.hpp"

#include <sys/random.h>

#include <vector>

#include "base/error.hpp"

namespace dlock {

std::string random_hex(std::size_t bytes) {
  std::vector<unsigned char> raw(bytes);
  if (getrandom(raw.data(), bytes, 0) != static_cast<ssize_t>(bytes)) throw_errno("getrandom");
  static constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : raw) {
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

}  // namespace dlock
