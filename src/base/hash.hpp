#pragma once

#include <cstdint>
#include <string_view>

namespace dlock {

/// FNV-1a, 64 bit (http://www.isthe.com/chongo/tech/comp/fnv/): finds torn writes and shortens
/// names. It guards against accidents, not against people. Another `basis` gives another hash.
constexpr std::uint64_t fnv1a(std::string_view bytes, std::uint64_t basis = 0xcbf29ce484222325u) {
  std::uint64_t hash = basis;
  for (const char c : bytes) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3u;
  }
  return hash;
}

}  // namespace dlock
