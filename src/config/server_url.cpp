#include "config/server_url.hpp"

#include <sys/un.h>

#include <algorithm>
#include <cctype>
#include <climits>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "config/database_url.hpp"
#include "config/redaction.hpp"
#include "config/suggestion.hpp"
#include "config/url_parts.hpp"

namespace dlock {
namespace {

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
  if (rest.starts_with("///")) rest.remove_prefix(2);  // as file: URLs have it
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
  if (target.password == "") throw_usage("the password before the @ is empty");
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

EtcdTarget parse_etcd(std::string_view rest, bool tls) {
#ifndef DLOCK_WITH_ETCD
  throw_usage("this dlock was built without etcd (DLOCK_ETCD is off)");
#endif
  constexpr int usual_etcd_port = 2379;
  Parts parts = take_parts(rest, tls, "etcd://HOST[:PORT],...");
  if (!parts.path.empty()) throw_usage("nothing may follow etcd://HOST[:PORT],...");
  if (parts.login.password && !parts.login.user) {
    throw_usage("a password without a user: write user:password@");
  }
  parts.login.port = usual_etcd_port;
  return EtcdTarget{take_addresses(parts.hosts, parts.login)};
}

/// The path of a node: no name in it is empty, `.` or `..`, as ZooKeeper itself has it.
std::string chroot_from(std::string_view path) {
  std::string chroot;
  while (!path.empty()) {
    const std::string name = decoded(take_until(path, '/'), "the path");
    const bool allowed = !name.empty() && name != "." && name != ".." && is_utf8(name) &&
                         name.find('/') == std::string::npos &&
                         std::none_of(name.begin(), name.end(),
                                      [](unsigned char c) { return c < ' ' || c == 0x7f; });
    if (!allowed) throw_usage("\"" + redacted(name) + "\" cannot be the name of a node");
    chroot += "/" + name;
  }
  return chroot;
}

ZooKeeperTarget parse_zookeeper(std::string_view rest) {
#ifndef DLOCK_WITH_ZOOKEEPER
  throw_usage("this dlock was built without ZooKeeper (DLOCK_ZOOKEEPER is off)");
#endif
  constexpr int usual_zookeeper_port = 2181;
  Parts parts = take_parts(rest, false, "zk://HOST[:PORT],.../CHROOT");
  if (parts.login.password && !parts.login.user) {
    throw_usage("a password without a user: write user:password@");
  }
  parts.login.port = usual_zookeeper_port;
  return ZooKeeperTarget{take_addresses(parts.hosts, parts.login), chroot_from(parts.path)};
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

[[noreturn]] void refuse_scheme(std::string_view scheme) {
  // As some clients and Docker's links have it.
  const std::string meant = scheme == "tcp" ? "redis" : std::string(scheme);
  const std::string suggestion = did_you_mean(
      meant + "://", {"local:", "redis://", "unix://", "rediss://", "redis+sentinel://",
                      "rediss+sentinel://", "redis+cluster://", "rediss+cluster://", "postgres://",
                      "postgresql://", "mysql://", "mariadb://", "etcd://", "etcds://", "zk://"});
  throw_usage("unknown scheme " + redacted(scheme) + "://" +
              (suggestion.empty()
                   ? ": it is local:, redis://, rediss://, unix://, redis+sentinel://, "
                     "redis+cluster://, postgres://, mysql://, mariadb://, etcd:// or zk://"
                   : suggestion));
}

[[noreturn]] void refuse_plain(std::string_view text) {
  const bool may_be_host =
      !text.empty() && !text.starts_with("redis") && !text.starts_with("unix") &&
      std::all_of(text.begin(), text.end(), [](unsigned char c) {
        return std::isalnum(c) != 0 ||
               std::string_view(".-:").find(static_cast<char>(c)) != std::string_view::npos;
      });
  const std::string meant = text == "local" ? "local:" : "redis://" + std::string(text);
  throw_usage("invalid URL \"" + redacted(text) +
              "\": expected local:[/DIR], redis://HOST[:PORT][/DB] or " + "unix:///PATH[?db=N]" +
              (may_be_host ? ": did you mean " + meant + "?" : ""));
}

}  // namespace

std::string EtcdTarget::name() const {
  return std::string(servers.front().tls ? "etcds" : "etcd") + "://" +
         joined(servers, ",", [](const Endpoint& each) { return each.address(); });
}

std::string ZooKeeperTarget::name() const {
  return "zk://" + joined(servers, ",", [](const Endpoint& each) { return each.address(); }) +
         escaped(chroot);
}

bool is_redis(const Target& target) {
  return std::holds_alternative<Endpoint>(target) ||
         std::holds_alternative<SentinelTarget>(target) ||
         std::holds_alternative<ClusterTarget>(target) ||
         std::holds_alternative<QuorumTarget>(target);
}

Target parse_server_url(std::string_view text) {
  // Files and variables that were filled by `$(cat ...)` of other shells, or by hand.
  while (text.ends_with('\n') || text.ends_with('\r')) text.remove_suffix(1);
  if (text.starts_with('"') || text.starts_with('\'')) {
    throw_usage("the URL begins with a quote: write it without quotes");
  }
  if (text.starts_with("local:")) return parse_local(text.substr(6));
  const auto colon = text.find("://");
  if (colon == std::string_view::npos) refuse_plain(text);
  const auto scheme = text.substr(0, colon);
  const auto rest = text.substr(colon + 3);
  if (scheme == "unix") return parse_unix(rest);
  if (scheme == "postgres" || scheme == "postgresql") return parse_postgres_url(text, rest);
  if (scheme == "mysql" || scheme == "mariadb") return parse_mysql_url(scheme, rest);
  if (scheme == "etcd" || scheme == "etcds") return parse_etcd(rest, scheme == "etcds");
  if (scheme == "zk") return parse_zookeeper(rest);
  if (scheme == "zks") {
    throw_usage("zks://: Debian builds ZooKeeper's client library without TLS: write zk://");
  }
  const auto plus = scheme.find('+');
  const auto family = scheme.substr(0, plus);
  const bool tls = family == "rediss" || family == "valkeys";
  if (!tls && family != "redis" && family != "valkey") refuse_scheme(scheme);
  if (plus == std::string_view::npos) return parse_redis(rest, tls);
  if (scheme.substr(plus) == "+sentinel") return parse_sentinel(rest, tls);
  if (scheme.substr(plus) == "+cluster") return parse_cluster(rest, tls);
  refuse_scheme(scheme);
}

}  // namespace dlock
