#include "base/random.hpp"

#include <sys/random.h>

#include <cstdint>
#include <vector>

#include "base/error.hpp"

namespace dlock {
namespace {

void fill(void* bytes, std::size_t size) {
  if (getrandom(bytes, size, 0) != static_cast<ssize_t>(size)) throw_errno("getrandom");
}

}  // namespace

std::string random_hex(std::size_t bytes) {
  std::vector<unsigned char> raw(bytes);
  fill(raw.data(), bytes);
  static constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : raw) {
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

milliseconds random_up_to(milliseconds most) {
  std::uint64_t number = 0;
  fill(&number, sizeof number);
  return milliseconds(number % (static_cast<std::uint64_t>(most.count()) + 1));
}

bool once_in(int calls) { return random_up_to(milliseconds(calls - 1)) == milliseconds(0); }

}  // namespace dlock
