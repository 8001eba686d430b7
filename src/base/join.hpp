#pragma once

#include <string>
#include <string_view>

namespace dlock {

/// What `text` makes of each, with `separator` between.
template <typename List, typename Text>
std::string joined(const List& list, std::string_view separator, const Text& text) {
  std::string all;
  bool first = true;
  for (const auto& each : list) {
    if (!first) all += separator;
    first = false;
    all += text(each);
  }
  return all;
}

template <typename List>
std::string joined(const List& list, std::string_view separator) {
  return joined(list, separator, [](const std::string& each) { return each; });
}

}  // namespace dlock
