#include "base/random.hpp"

#include <sys/random.h>

#include <cstdint>

#include "base/error.hpp"
#include "base/text.hpp"

namespace dlock {
namespace {

void fill(void* bytes, std::size_t size) {
  if (getrandom(bytes, size, 0) != static_cast<ssize_t>(size)) throw_errno("getrandom");
}

}  // namespace

std::string random_hex(std::size_t bytes) {
  std::string raw(bytes, '\0');
  fill(raw.data(), bytes);
  return hex(raw);
}

milliseconds random_up_to(milliseconds most) {
  std::uint64_t number = 0;
  fill(&number, sizeof number);
  return milliseconds(number % (static_cast<std::uint64_t>(most.count()) + 1));
}

bool once_in(int calls) { return random_up_to(milliseconds(calls - 1)) == milliseconds(0); }

}  // namespace dlock
