#include "config/url_parts.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <cctype>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "config/redaction.hpp"

namespace dlock {
namespace {

bool is_ipv6(const std::string& text) {
  in6_addr address{};
  return inet_pton(AF_INET6, text.substr(0, text.find('%')).c_str(), &address) == 1;
}

}  // namespace

std::string_view cut_until(std::string_view& text, std::string_view marks) {
  const auto part = text.substr(0, text.find_first_of(marks));
  text.remove_prefix(part.size());
  return part;
}

std::string decoded(std::string_view text, const std::string& what) {
  const auto is_hex = [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; };
  for (std::size_t i = text.find('%'); i != std::string_view::npos; i = text.find('%', i + 1)) {
    const bool pair = i + 2 < text.size() && is_hex(text[i + 1]) && is_hex(text[i + 2]);
    if (!pair) throw_usage(what + " has a % without two hex digits after it: a % itself is %25");
  }
  std::string plain = percent_decoded(text);
  if (plain.find('\0') != std::string::npos) throw_usage(what + " holds a NUL");
  return plain;
}

void refuse_colons() {
  // It may be a password that lacks its @.
  throw_usage("no HOST:PORT after :// : an IPv6 address has brackets, as in [::1]:6379, and " +
              std::string("an @ follows a password"));
}

std::string take_host(std::string_view& authority) {
  if (authority.starts_with('[')) {
    const auto close = authority.find(']');
    std::string address = decoded(authority.substr(1, close - 1), "the address");
    if (close == std::string_view::npos || !is_ipv6(address)) {
      throw_usage("\"" + redacted(authority) +
                  "\" is not an IPv6 address in brackets, as in [::1]:6379");
    }
    authority.remove_prefix(close + 1);
    return address;
  }
  if (std::count(authority.begin(), authority.end(), ':') > 1) {
    refuse_colons();
  }
  std::string host(cut_until(authority, ":"));
  const bool named = std::all_of(host.begin(), host.end(), [](char c) {
    const bool mark = c == '-' || c == '.' || c == '_';
    return mark || std::isalnum(static_cast<unsigned char>(c)) != 0;
  });
  constexpr std::size_t longest_host = 253;
  if (host.empty()) throw_usage("the host is missing: redis://HOST[:PORT][/DB]");
  if (!named || host.size() > longest_host)
    throw_usage("invalid host name \"" + redacted(host) + "\"");
  return host;
}

int parse_port(std::string_view text) {
  const auto port = parse_number(text, 1, 65535);
  if (port) return static_cast<int>(*port);
  const bool digits = text.find_first_not_of("0123456789") == std::string_view::npos;
  if (digits) throw_usage("invalid port \"" + redacted(text) + "\" (1 to 65535)");
  // It may be a password that lacks its @.
  throw_usage("the port is no number from 1 to 65535; an @ follows a password");
}

std::string_view take_authority(std::string_view& rest, bool path_may_have_at) {
  const auto authority = cut_until(rest, "/?#");
  const bool unfinished = rest.find('@') != std::string_view::npos;
  if (unfinished && !path_may_have_at) {
    throw_usage(
        "an @ follows the host: in a user or password, write %2F for /, %3F for ?, %23 for #");
  }
  return authority;
}

}  // namespace dlock
