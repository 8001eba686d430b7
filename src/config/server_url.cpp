#include "config/server_url.hpp"

#include <arpa/inet.h>
#include <sys/un.h>

#include <algorithm>
#include <cctype>
#include <climits>
#include <cstring>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/escape.hpp"
#include "config/suggestion.hpp"

namespace dlock {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw Error(Trouble::usage, why); }

/// `text` escaped, without the end of what is too long for a message.
std::string clipped(std::string_view text) {
  constexpr std::size_t longest = 80;
  if (text.size() <= longest) return escaped(text);
  std::size_t end = longest;
  while (end > longest - 4 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return escaped(text.substr(0, end)) + "...";
}

/// What stands before the first of `marks`, cut off the front of `text`.
std::string_view cut_until(std::string_view& text, std::string_view marks) {
  const auto part = text.substr(0, text.find_first_of(marks));
  text.remove_prefix(part.size());
  return part;
}

std::string decoded(std::string_view text, const std::string& what) {
  const auto is_hex = [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; };
  for (std::size_t i = text.find('%'); i != std::string_view::npos; i = text.find('%', i + 1)) {
    const bool pair = i + 2 < text.size() && is_hex(text[i + 1]) && is_hex(text[i + 2]);
    if (!pair) refuse(what + " has a % without two hex digits behind it: a % itself is %25");
  }
  std::string plain = percent_decoded(text);
  if (plain.find('\0') != std::string::npos) refuse(what + " holds a NUL");
  return plain;
}

std::string absolute_path(std::string_view text, const char* scheme) {
  std::string path = decoded(text, "the path");
  if (path.empty() || path[0] != '/' || path.starts_with("//")) {
    refuse("\"" + redacted(path) + "\" is no absolute path: write " + scheme + "/DIRECTORY/...");
  }
  return path;
}

LocalTarget parse_local(std::string_view rest) {
  if (rest.empty()) return {};
  if (rest.find_first_of("?#") != std::string_view::npos) {
    refuse("local: takes a directory and nothing behind it: a ? in its name is %3F, a # is %23");
  }
  return LocalTarget{absolute_path(rest, "local:")};
}

int parse_db(std::string_view text) {
  const auto db = parse_number(text, 0, INT_MAX);
  if (!db) refuse("\"" + redacted(text) + "\" is no database number: it is 0, 1, 2, ...");
  return static_cast<int>(*db);
}

/// `user:pw@`, `:pw@` or `user@`, cut off the front of `authority`.
void take_credentials(std::string_view& authority, RedisTarget& target) {
  const auto at = authority.rfind('@');
  if (at == std::string_view::npos) return;
  const auto credentials = authority.substr(0, at);
  authority.remove_prefix(at + 1);
  const auto colon = credentials.find(':');
  const auto user = credentials.substr(0, colon);
  if (credentials.empty()) refuse("nothing stands before the @: drop it, or write user:password@");
  if (!user.empty()) target.user = decoded(user, "the user");
  if (colon == std::string_view::npos) return;
  target.password = decoded(credentials.substr(colon + 1), "the password");
  if (target.password->empty()) refuse("the password before the @ is empty");
}

bool is_ipv6(const std::string& text) {
  in6_addr address{};
  return inet_pton(AF_INET6, text.substr(0, text.find('%')).c_str(), &address) == 1;
}

/// A name or an address, cut off the front of `authority`; IPv6 stands in brackets.
std::string take_host(std::string_view& authority) {
  if (authority.starts_with('[')) {
    const auto close = authority.find(']');
    std::string address = decoded(authority.substr(1, close - 1), "the address");
    if (close == std::string_view::npos || !is_ipv6(address)) {
      refuse("\"" + redacted(authority) + "\" is no IPv6 address in brackets, as in [::1]:6379");
    }
    authority.remove_prefix(close + 1);
    return address;
  }
  if (std::count(authority.begin(), authority.end(), ':') > 1) {
    refuse("\"" + redacted(authority) + "\" is no HOST:PORT: IPv6 stands in brackets: [::1]:6379");
  }
  std::string host(cut_until(authority, ":"));
  const bool named = std::all_of(host.begin(), host.end(), [](char c) {
    const bool mark = c == '-' || c == '.' || c == '_';
    return mark || std::isalnum(static_cast<unsigned char>(c)) != 0;
  });
  constexpr std::size_t longest_host = 253;
  if (host.empty()) refuse("the host is missing: redis://HOST[:PORT][/DB]");
  if (!named || host.size() > longest_host) refuse("\"" + redacted(host) + "\" is no host name");
  return host;
}

int parse_port(std::string_view text) {
  const auto port = parse_number(text, 1, 65535);
  if (!port) refuse("\"" + redacted(text) + "\" is no port: it is 1 to 65535");
  return static_cast<int>(*port);
}

/// The part between `://` and the path. A `/`, `?` or `#` in a password would end it too early, and
/// the rest of the password would be taken for a path and shown.
std::string_view take_authority(std::string_view& rest, bool path_may_have_at) {
  const auto authority = cut_until(rest, "/?#");
  const bool unfinished = rest.find('@') != std::string_view::npos;
  if (unfinished && !path_may_have_at) {
    refuse("an @ stands behind the host: in a user or password, / is written %2F, ? %3F, # %23");
  }
  return authority;
}

RedisTarget parse_redis(std::string_view rest) {
  RedisTarget target;
  auto authority = take_authority(rest, false);
  take_credentials(authority, target);
  target.host = take_host(authority);
  if (authority.starts_with(':')) {
    target.port = parse_port(authority.substr(1));
  } else if (!authority.empty()) {
    refuse("\"" + redacted(authority) + "\" behind the host is no :PORT");
  }
  if (rest.find_first_of("?#") != std::string_view::npos) {
    refuse("redis:// takes nothing behind the database: redis://HOST[:PORT][/DB]");
  }
  if (rest.size() > 1) target.db = parse_db(rest.substr(1));
  return target;
}

/// `db=N`, all that a query may hold.
int parse_query(std::string_view query) {
  const auto name = query.substr(0, query.find('='));
  if (name != "db" || name.size() == query.size()) {
    refuse("\"" + redacted(name) + "\" is not known behind the ?: unix:///PATH?db=N");
  }
  return parse_db(query.substr(name.size() + 1));
}

RedisTarget parse_unix(std::string_view rest) {
  RedisTarget target;
  auto authority = take_authority(rest, rest.starts_with('/'));
  take_credentials(authority, target);
  if (!authority.empty()) {
    refuse("\"" + redacted(authority) +
           "\" stands before the path: unix:///PATH has three slashes");
  }
  target.socket = absolute_path(cut_until(rest, "?#"), "unix://");
  if (target.socket.size() >= sizeof(sockaddr_un::sun_path)) {
    refuse("the path of a socket is at most " + std::to_string(sizeof(sockaddr_un::sun_path) - 1) +
           " bytes");
  }
  if (rest.starts_with('#')) refuse("unix:// takes nothing behind the path but ?db=N");
  if (rest.starts_with('?')) target.db = parse_query(rest.substr(1));
  return target;
}

[[noreturn]] void refuse_scheme(std::string_view scheme) {
  for (const char* later :
       {"rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster"}) {
    if (scheme == later) refuse(redacted(scheme) + ":// is not supported by this version");
  }
  const std::string suggestion =
      did_you_mean(std::string(scheme) + "://", {"local:", "redis://", "unix://"});
  refuse("unknown scheme " + redacted(scheme) + "://" +
         (suggestion.empty() ? ": it is local:, redis:// or unix://" : suggestion));
}

}  // namespace

Target parse_server_url(std::string_view text) {
  if (text.starts_with("local:")) return parse_local(text.substr(6));
  const auto colon = text.find("://");
  if (colon == std::string_view::npos) {
    refuse("\"" + redacted(text) + "\" is no URL: local:[/DIR], redis://HOST[:PORT][/DB] or " +
           "unix:///PATH[?db=N]");
  }
  const auto scheme = text.substr(0, colon);
  const auto rest = text.substr(colon + 3);
  if (scheme == "redis") return parse_redis(rest);
  if (scheme == "unix") return parse_unix(rest);
  refuse_scheme(scheme);
}

std::string shown(const Target& target) {
  if (const auto* local = std::get_if<LocalTarget>(&target)) {
    return "local:" + escaped(local->dir.value_or(""));
  }
  const auto& redis = std::get<RedisTarget>(target);
  const std::string db = std::to_string(redis.db);
  if (!redis.socket.empty()) return "unix://" + escaped(redis.socket) + "?db=" + db;
  const bool ipv6 = redis.host.find(':') != std::string::npos;
  const std::string host = ipv6 ? "[" + redis.host + "]" : redis.host;
  return "redis://" + escaped(host) + ":" + std::to_string(redis.port) + "/" + db;
}

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
