#include "support/jute.hpp"

namespace dlock::test {
namespace {

/// No server of the tests sends more.
constexpr std::int32_t longest_frame = 16 << 20;

}  // namespace

std::int32_t jute_number_at(std::string_view bytes, std::size_t at) {
  if (bytes.size() < 4 || at > bytes.size() - 4) return 0;
  std::uint32_t number = 0;
  for (const char byte : bytes.substr(at, 4))
    number = (number << 8) | static_cast<unsigned char>(byte);
  return static_cast<std::int32_t>(number);
}

std::optional<std::size_t> jute_frame_size(std::string_view bytes) {
  if (bytes.size() < 4) return std::nullopt;
  const std::int32_t length = jute_number_at(bytes, 0);
  if (length < 0 || length > longest_frame) return bytes.size();
  const std::size_t size = 4 + static_cast<std::size_t>(length);
  return bytes.size() < size ? std::nullopt : std::optional(size);
}

}  // namespace dlock::test
