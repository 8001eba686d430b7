#include "redis/node_address.hpp"

#include <algorithm>
#include <cctype>

#include "base/duration.hpp"

namespace dlock {

std::optional<NodeAddress> announced(std::string_view host, std::string_view port) {
  constexpr std::size_t longest_host = 253;
  const bool plain = std::all_of(host.begin(), host.end(), [](char c) {
    const bool mark = c == '-' || c == '.' || c == '_' || c == ':' || c == '%';
    return mark || std::isalnum(static_cast<unsigned char>(c)) != 0;
  });
  const auto number = parse_number(port, 1, 65535);
  if (!plain || host.empty() || host.size() > longest_host || !number) return std::nullopt;
  return NodeAddress{std::string(host), static_cast<int>(*number)};
}

}  // namespace dlock
