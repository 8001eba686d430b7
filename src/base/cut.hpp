#pragma once

#include <algorithm>
#include <string_view>

namespace dlock {

/// Cuts off the front of `text` what stands before the first `separator`, and that too; all of it
/// where there is none. Lines, words and fields are read with it, one after the other.
inline std::string_view take_until(std::string_view& text, char separator) {
  const auto piece = text.substr(0, text.find(separator));
  text.remove_prefix(std::min(text.size(), piece.size() + 1));
  return piece;
}

}  // namespace dlock
