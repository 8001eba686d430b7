// The function that libFuzzer calls.

#include <cstddef>
#include <cstdint>

#include "fuzz/fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  dlock::fuzz::try_input({reinterpret_cast<const char*>(bytes), size});
  return 0;
}
