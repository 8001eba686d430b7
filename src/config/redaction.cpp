#include "config/redaction.hpp"

#include <algorithm>
#include <cstring>

#include "base/escape.hpp"

namespace dlock {
namespace {

/// `text` escaped, without the end of what is too long for a message.
std::string clipped(std::string_view text) {
  constexpr std::size_t longest = 80;
  if (text.size() <= longest) return escaped(text);
  std::size_t end = longest;
  while (end > longest - 4 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return escaped(text.substr(0, end)) + "...";
}

}  // namespace

std::string redacted(std::string_view text) {
  const auto at = text.rfind('@');
  if (at == std::string_view::npos) return clipped(text);
  const auto colon = text.substr(0, at).find("://");
  const auto scheme = colon == std::string_view::npos ? "" : text.substr(0, colon + 3);
  return clipped(scheme) + "***" + clipped(text.substr(at));
}

std::string in_quotes(std::string_view text) {
  const bool url = text.find("://") != std::string_view::npos;
  return "\"" + (url ? redacted(text) : clipped(text)) + "\"";
}

bool holds_password(std::string_view text) {
  const auto scheme = text.find("://");
  const auto at = text.rfind('@');
  if (scheme == std::string_view::npos || at == std::string_view::npos) return false;
  const auto colon = text.find(':', scheme + 3);
  return colon < at;
}

void scrub_passwords(int argc, char** argv) {
  for (int i = 0; i < argc; ++i) {
    char* from = std::strstr(argv[i], "://");
    char* to = std::strrchr(argv[i], '@');
    if (from != nullptr && to != nullptr && from + 3 < to) std::fill(from + 3, to, '*');
  }
}

}  // namespace dlock
