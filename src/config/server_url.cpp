#include "config/server_url.hpp"

#include <arpa/inet.h>
#include <sys/un.h>

#include <algorithm>
#include <cctype>
#include <climits>

#include "base/cut.hpp"
#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/escape.hpp"
#include "config/redaction.hpp"
#include "config/suggestion.hpp"

namespace dlock {
namespace {

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
    if (!pair) throw_usage(what + " has a % without two hex digits after it: a % itself is %25");
  }
  std::string plain = percent_decoded(text);
  if (plain.find('\0') != std::string::npos) throw_usage(what + " holds a NUL");
  return plain;
}

std::string absolute_path(std::string_view text, const char* scheme) {
  std::string path = decoded(text, "the path");
  if (path.empty() || path[0] != '/' || path.starts_with("//")) {
    throw_usage("\"" + redacted(path) + "\" is not an absolute path: write " + scheme +
                "/DIRECTORY/...");
  }
  return path;
}

LocalTarget parse_local(std::string_view rest) {
  if (rest.empty()) return {};
  if (rest.find_first_of("?#") != std::string_view::npos) {
    throw_usage(
        "local: takes a directory and nothing after it: a ? in its name is %3F, a # is %23");
  }
  return LocalTarget{absolute_path(rest, "local:")};
}

int parse_db(std::string_view text) {
  const auto db = parse_number(text, 0, INT_MAX);
  if (!db) throw_usage("invalid database number \"" + redacted(text) + "\" (0, 1, 2, ...)");
  return static_cast<int>(*db);
}

/// `user:pw@`, `:pw@` or `user@`, cut off the front of `authority`.
void take_credentials(std::string_view& authority, Endpoint& target) {
  const auto at = authority.rfind('@');
  if (at == std::string_view::npos) return;
  const auto credentials = authority.substr(0, at);
  authority.remove_prefix(at + 1);
  const auto colon = credentials.find(':');
  const auto user = credentials.substr(0, colon);
  if (credentials.empty())
    throw_usage("nothing comes before the @: drop it, or write user:password@");
  if (!user.empty()) target.user = decoded(user, "the user");
  if (colon == std::string_view::npos) return;
  target.password = decoded(credentials.substr(colon + 1), "the password");
  if (target.password->empty()) throw_usage("the password before the @ is empty");
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
      throw_usage("\"" + redacted(authority) +
                  "\" is not an IPv6 address in brackets, as in [::1]:6379");
    }
    authority.remove_prefix(close + 1);
    return address;
  }
  if (std::count(authority.begin(), authority.end(), ':') > 1) {
    // It may be a password that lacks its @.
    throw_usage("no HOST:PORT after :// : an IPv6 address has brackets, as in [::1]:6379, and " +
                std::string("an @ follows a password"));
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
  if (!port) throw_usage("invalid port \"" + redacted(text) + "\" (1 to 65535)");
  return static_cast<int>(*port);
}

/// The part between `://` and the path. A `/`, `?` or `#` in a password would end it too early, and
/// the rest of the password would be taken for a path and shown.
std::string_view take_authority(std::string_view& rest, bool path_may_have_at) {
  const auto authority = cut_until(rest, "/?#");
  const bool unfinished = rest.find('@') != std::string_view::npos;
  if (unfinished && !path_may_have_at) {
    throw_usage(
        "an @ follows the host: in a user or password, write %2F for /, %3F for ?, %23 for #");
  }
  return authority;
}

/// `HOST[:PORT]`, all of `text`.
void take_address(std::string_view text, Endpoint& endpoint) {
  endpoint.host = take_host(text);
  if (text.starts_with(':')) {
    endpoint.port = parse_port(text.substr(1));
  } else if (!text.empty()) {
    throw_usage("\"" + redacted(text) + "\" after the host is not :PORT");
  }
}

/// `H1[:P1],H2,...`, each with what `like` has beside.
std::vector<Endpoint> take_addresses(std::string_view hosts, const Endpoint& like) {
  std::vector<Endpoint> endpoints;
  while (true) {
    Endpoint endpoint = like;
    take_address(cut_until(hosts, ","), endpoint);
    const bool twice = std::find(endpoints.begin(), endpoints.end(), endpoint) != endpoints.end();
    if (twice) throw_usage(endpoint.address() + " is named twice");
    endpoints.push_back(std::move(endpoint));
    if (hosts.empty()) return endpoints;
    hosts.remove_prefix(1);
  }
}

/// What a URL of the redis family holds: `scheme://CREDENTIALS@HOSTS/PATH`.
struct Parts {
  Endpoint login;
  std::string_view hosts;
  std::string_view path;  ///< behind the first slash
};

Parts take_parts(std::string_view rest, bool tls, const char* form) {
  Parts parts;
  if (tls) parts.login.tls.emplace();
  parts.hosts = take_authority(rest, false);
  const bool several = parts.hosts.find('@') != parts.hosts.rfind('@');
  if (several &&
      parts.hosts.substr(0, parts.hosts.rfind('@')).find(',') != std::string_view::npos) {
    throw_usage(
        "user and password come once, before the first host; write %2C for a comma in them");
  }
  take_credentials(parts.hosts, parts.login);
  if (rest.find_first_of("?#") != std::string_view::npos) {
    throw_usage(std::string("nothing may follow ") + form);
  }
  if (!rest.empty()) parts.path = rest.substr(1);
  return parts;
}

Endpoint parse_redis(std::string_view rest, bool tls) {
  Parts parts = take_parts(rest, tls, "redis://HOST[:PORT][/DB]");
  take_address(parts.hosts, parts.login);
  if (!parts.path.empty()) parts.login.database = parse_db(parts.path);
  return parts.login;
}

/// Sentinel knows masters by names of these characters alone (sentinel.c).
bool is_master_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' || c == '_';
  });
}

SentinelTarget parse_sentinel(std::string_view rest, bool tls) {
  Parts parts = take_parts(rest, tls, "redis+sentinel://HOST[:PORT],.../NAME[/DB]");
  const auto name = cut_until(parts.path, "/");
  if (name.empty()) {
    throw_usage("the name of the master is missing: redis+sentinel://HOST[:PORT],.../NAME[/DB]");
  }
  if (!is_master_name(name)) throw_usage("invalid name of a master \"" + redacted(name) + "\"");
  constexpr int usual_sentinel_port = 26379;
  Endpoint sentinel;
  sentinel.port = usual_sentinel_port;
  sentinel.tls = parts.login.tls;
  SentinelTarget target{take_addresses(parts.hosts, sentinel), std::string(name), parts.login};
  if (parts.path.size() > 1) target.master.database = parse_db(parts.path.substr(1));
  return target;
}

ClusterTarget parse_cluster(std::string_view rest, bool tls) {
  Parts parts = take_parts(rest, tls, "redis+cluster://HOST[:PORT],...");
  if (!parts.path.empty() && parse_db(parts.path) != 0) {
    throw_usage("a Cluster has database 0 only: redis+cluster://HOST[:PORT],...");
  }
  return ClusterTarget{take_addresses(parts.hosts, parts.login)};
}

/// `db=N`, all that a query may hold.
int parse_query(std::string_view query) {
  const auto name = query.substr(0, query.find('='));
  if (query.find('&') != std::string_view::npos) throw_usage("unix:///PATH takes only ?db=N");
  if (name != "db" || name.size() == query.size()) {
    throw_usage("\"" + redacted(name) + "\" after the ? is unknown: unix:///PATH?db=N");
  }
  return parse_db(query.substr(name.size() + 1));
}

Endpoint parse_unix(std::string_view rest) {
  Endpoint target;
  auto authority = take_authority(rest, rest.starts_with('/'));
  take_credentials(authority, target);
  if (!authority.empty()) {
    throw_usage("\"" + redacted(authority) +
                "\" comes before the path: unix:///PATH has three slashes");
  }
  target.socket_path = absolute_path(cut_until(rest, "?#"), "unix://");
  if (target.socket_path.size() >= sizeof(sockaddr_un::sun_path)) {
    throw_usage("the path of a socket is at most " +
                std::to_string(sizeof(sockaddr_un::sun_path) - 1) + " bytes");
  }
  if (rest.starts_with('#')) throw_usage("unix:// takes nothing after the path except ?db=N");
  if (rest.starts_with('?')) target.database = parse_query(rest.substr(1));
  return target;
}

/// `host=` and `port=` of a query, which tell where the database is.
std::string shown_address(std::string_view query) {
  std::string shown;
  while (!query.empty()) {
    const auto parameter = take_until(query, '&');
    if (!parameter.starts_with("host=") && !parameter.starts_with("port=")) continue;
    shown += (shown.empty() ? "?" : "&") + escaped(percent_decoded(parameter));
  }
  return shown;
}

/// A URL of PostgreSQL: libpq reads it, and knows more forms than need be known here.
SqlTarget parse_postgres(std::string_view text, std::string_view rest) {
#ifndef DLOCK_WITH_POSTGRESQL
  throw_usage("this dlock was built without PostgreSQL (DLOCK_POSTGRESQL is off)");
#endif
  if (rest.find('#') != std::string_view::npos) {
    throw_usage("a # stands in the URL: in a user, password or name it is written %23");
  }
  auto authority = take_authority(rest, false);
  const auto at = authority.rfind('@');
  SqlTarget target;
  target.url = std::string(text);
  if (at != std::string_view::npos) {
    const auto login = authority.substr(0, at);
    target.has_password = login.find(':') != std::string_view::npos;
    authority.remove_prefix(at + 1);
  }
  const auto path = cut_until(rest, "?");
  if (!rest.empty()) rest.remove_prefix(1);
  target.has_password =
      target.has_password || ("&" + std::string(rest)).find("&password=") != std::string::npos;
  target.shown = "postgres://" + escaped(percent_decoded(authority)) +
                 escaped(percent_decoded(path)) + shown_address(rest);
  return target;
}

[[noreturn]] void refuse_scheme(std::string_view scheme) {
  const std::string suggestion = did_you_mean(
      std::string(scheme) + "://",
      {"local:", "redis://", "unix://", "rediss://", "redis+sentinel://", "rediss+sentinel://",
       "redis+cluster://", "rediss+cluster://", "postgres://", "postgresql://"});
  throw_usage("unknown scheme " + redacted(scheme) + "://" +
              (suggestion.empty()
                   ? ": it is local:, redis://, rediss://, unix://, redis+sentinel://, "
                     "redis+cluster:// or postgres://"
                   : suggestion));
}

[[noreturn]] void refuse_plain(std::string_view text) {
  const bool may_be_host =
      !text.empty() && !text.starts_with("redis") && !text.starts_with("unix") &&
      std::all_of(text.begin(), text.end(), [](unsigned char c) {
        return std::isalnum(c) != 0 || std::string_view(".-:").find(c) != std::string_view::npos;
      });
  const std::string meant = text == "local" ? "local:" : "redis://" + std::string(text);
  throw_usage("invalid URL \"" + redacted(text) +
              "\": expected local:[/DIR], redis://HOST[:PORT][/DB] or " + "unix:///PATH[?db=N]" +
              (may_be_host ? ": did you mean " + meant + "?" : ""));
}

}  // namespace

Target parse_server_url(std::string_view text) {
  if (text.starts_with("local:")) return parse_local(text.substr(6));
  const auto colon = text.find("://");
  if (colon == std::string_view::npos) refuse_plain(text);
  const auto scheme = text.substr(0, colon);
  const auto rest = text.substr(colon + 3);
  if (scheme == "unix") return parse_unix(rest);
  if (scheme == "postgres" || scheme == "postgresql") return parse_postgres(text, rest);
  const auto plus = scheme.find('+');
  const bool tls = scheme.substr(0, plus) == "rediss";
  if (!tls && scheme.substr(0, plus) != "redis") refuse_scheme(scheme);
  if (plus == std::string_view::npos) return parse_redis(rest, tls);
  if (scheme.substr(plus) == "+sentinel") return parse_sentinel(rest, tls);
  if (scheme.substr(plus) == "+cluster") return parse_cluster(rest, tls);
  refuse_scheme(scheme);
}

}  // namespace dlock
