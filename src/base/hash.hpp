#pragma once

#include <cstdint>
#include <cstring>
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

/// The same for longer texts, eight bytes at a time: a product, and its upper half folded into the
/// lower one, which a product alone leaves untouched by what stands above.
inline std::uint64_t block_hash(std::string_view bytes) {
  constexpr std::uint64_t odd = 0x9e3779b97f4a7c15u;
  std::uint64_t hash = bytes.size();
  const auto take = [&hash](std::uint64_t word) {
    hash = (hash ^ word) * odd;
    hash ^= hash >> 32;
  };
  std::uint64_t word = 0;
  for (; bytes.size() >= sizeof word; bytes.remove_prefix(sizeof word)) {
    std::memcpy(&word, bytes.data(), sizeof word);
    take(word);
  }
  word = 0;
  std::memcpy(&word, bytes.data(), bytes.size());
  take(word);
  return hash;
}

}  // namespace dlock
