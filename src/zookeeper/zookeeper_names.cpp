#include "zookeeper/zookeeper_names.hpp"

#include "base/text.hpp"

namespace dlock {

std::string zookeeper_node_name(std::string_view text) {
  static const std::string special = [] {
    std::string bytes = "/";
    for (int byte = 0x80; byte <= 0xff; ++byte) bytes += static_cast<char>(byte);
    return bytes;
  }();
  return percent_encoded(text, special);
}

std::string zookeeper_directory(std::string prefix) {
  if (prefix.ends_with(':')) prefix.pop_back();
  return prefix.empty() ? "dlock-locks" : zookeeper_node_name(prefix);
}

}  // namespace dlock
