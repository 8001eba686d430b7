#include "config/secrets.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/text.hpp"

namespace dlock {
namespace {

/// Escapes `text`, and shortens it if it is too long for a message.
std::string clipped(std::string_view text) {
  constexpr std::size_t longest = 80;
  if (text.size() <= longest) return escaped(text);
  std::size_t end = longest;
  while (end > longest - 4 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return escaped(text.substr(0, end)) + "...";
}

struct Span {
  std::size_t begin;
  std::size_t end;
};

/// Whether a query parameter of this name is a secret: a password, a client's secret, or a key that
/// libpq accepts in place of a password.
bool is_secret_name(std::string_view name) {
  return name.ends_with("password") || name.ends_with("_secret") || name == "scram_client_key" ||
         name == "scram_server_key";
}

/// The values of `password=` and similar parameters after the `?` of a URL. libpq decodes
/// percent-encoding in their names, too.
std::vector<Span> query_passwords(std::string_view url) {
  std::vector<Span> found;
  const auto query = url.find('?');
  if (query == std::string_view::npos || url.find("://") > query) return found;
  for (auto at = url.find('=', query); at != std::string_view::npos; at = url.find('=', at)) {
    const auto begin = url.find_last_of("?&#", at) + 1;
    const std::string name = percent_decoded(url.substr(begin, at - begin));
    ++at;
    if (!is_secret_name(name)) continue;
    found.push_back({at, std::min(url.find_first_of("&#", at), url.size())});
    at = found.back().end;
  }
  return found;
}

}  // namespace

std::string redacted(std::string_view whole) {
  std::string text(whole);
  const auto passwords = query_passwords(whole);
  for (auto each = passwords.rbegin(); each != passwords.rend(); ++each) {
    text.replace(each->begin, each->end - each->begin, "***");
  }
  const auto at = text.rfind('@');
  if (at == std::string_view::npos) return clipped(text);
  const auto colon = text.substr(0, at).find("://");
  const auto scheme = colon == std::string_view::npos ? "" : text.substr(0, colon + 3);
  return clipped(scheme) + "***" + clipped(std::string_view(text).substr(at));
}

std::string in_quotes(std::string_view text) {
  const bool url = text.find("://") != std::string_view::npos;
  return "\"" + (url ? redacted(text) : clipped(text)) + "\"";
}

bool holds_password(std::string_view text) {
  if (!query_passwords(text).empty()) return true;
  const auto scheme = text.find("://");
  const auto at = text.rfind('@');
  if (scheme == std::string_view::npos || at == std::string_view::npos) return false;
  const auto colon = text.find(':', scheme + 3);
  return colon < at;
}

void scrub_secrets(int argc, char** argv) {
  constexpr std::string_view option = "--token";
  for (int i = 0; i < argc && std::string_view(argv[i]) != "--"; ++i) {
    const std::string_view text = argv[i];
    char* token = nullptr;
    if (text == option && i + 1 < argc) token = argv[i + 1];
    if (text.starts_with(option) && text.substr(option.size()).starts_with('=')) {
      token = argv[i] + option.size() + 1;
    }
    if (token != nullptr) std::fill(token, token + std::strlen(token), '*');
  }
  for (int i = 0; i < argc; ++i) {
    char* from = std::strstr(argv[i], "://");
    char* to = std::strrchr(argv[i], '@');
    if (from != nullptr && to != nullptr && from + 3 < to) std::fill(from + 3, to, '*');
    for (const Span& password : query_passwords(argv[i])) {
      std::fill(argv[i] + password.begin, argv[i] + password.end, '*');
    }
  }
}

}  // namespace dlock
