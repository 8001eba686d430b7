#include "config/server_url.hpp"

#include <sys/un.h>

#include <algorithm>
#include <cctype>
#include <climits>
#include <utility>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "config/options.hpp"
#include "config/url_parts.hpp"
#include "config/user_text.hpp"

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
  if (rest.starts_with("///")) rest.remove_prefix(2);  // as in file: URLs
  return LocalTarget{absolute_path(rest, "local:")};
}

int parse_db(std::string_view text) {
  const auto db = parse_number(text, 0, INT_MAX);
  if (!db) throw_usage("invalid database number \"" + redacted(text) + "\" (0, 1, 2, ...)");
  return static_cast<int>(*db);
}

Endpoint parse_redis(std::string_view rest, bool tls) {
  UrlParts parts = url_parts(rest, "redis://HOST[:PORT][/DB]");
  Endpoint server = parts.login(tls);
  server.host = take_host(parts.hosts);
  server.port = port_in(parts.hosts, server.port);
  if (!parts.path.empty()) server.database = parse_db(parts.path);
  return server;
}

/// Sentinel accepts only these characters in the name of a master (sentinel.c).
bool is_master_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' || c == '_';
  });
}

SentinelTarget parse_sentinel(std::string_view rest, bool tls) {
  UrlParts parts = url_parts(rest, "redis+sentinel://HOST[:PORT],.../NAME[/DB]");
  const auto name = cut_until(parts.path, "/");
  if (name.empty()) {
    throw_usage("the name of the master is missing: redis+sentinel://HOST[:PORT],.../NAME[/DB]");
  }
  if (!is_master_name(name)) throw_usage("invalid name of a master \"" + redacted(name) + "\"");
  constexpr int usual_sentinel_port = 26379;
  Endpoint sentinel;
  sentinel.port = usual_sentinel_port;
  SentinelTarget target{{}, std::string(name), parts.login(tls)};
  sentinel.tls = target.master.tls;
  target.sentinels = endpoints_at(parts.hosts, sentinel);
  if (parts.path.size() > 1) target.master.database = parse_db(parts.path.substr(1));
  return target;
}

ClusterTarget parse_cluster(std::string_view rest, bool tls) {
  const UrlParts parts = url_parts(rest, "redis+cluster://HOST[:PORT],...");
  if (!parts.path.empty() && parse_db(parts.path) != 0) {
    throw_usage("a Cluster has database 0 only: redis+cluster://HOST[:PORT],...");
  }
  return ClusterTarget{endpoints_at(parts.hosts, parts.login(tls))};
}

/// The members of etcd or ZooKeeper, where a password belongs to a user.
std::vector<Endpoint> members_in(const UrlParts& parts, bool tls, int usual_port) {
  Endpoint server = parts.login(tls);
  if (server.password && !server.user) {
    throw_usage("a password without a user: write user:password@");
  }
  server.port = usual_port;
  return endpoints_at(parts.hosts, server);
}

EtcdTarget parse_etcd(std::string_view rest, bool tls) {
#ifndef DLOCK_WITH_ETCD
  throw_usage("this dlock was built without etcd (DLOCK_ETCD is off)");
#endif
  constexpr int usual_etcd_port = 2379;
  const UrlParts parts = url_parts(rest, "etcd://HOST[:PORT],...");
  if (!parts.path.empty()) throw_usage("nothing may follow etcd://HOST[:PORT],...");
  return EtcdTarget{members_in(parts, tls, usual_etcd_port)};
}

/// Parses the path of a node. No name in it may be empty, `.` or `..`, as ZooKeeper requires.
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
  const UrlParts parts = url_parts(rest, "zk://HOST[:PORT],.../CHROOT");
  return ZooKeeperTarget{members_in(parts, false, usual_zookeeper_port), chroot_from(parts.path)};
}

Endpoint parse_unix(std::string_view rest) {
  UrlParts parts = url_parts(rest, rest.starts_with('/'));
  Endpoint target = parts.login(false);
  if (!parts.hosts.empty() || parts.path.empty()) {
    throw_usage("\"" + redacted(parts.hosts) +
                "\" comes before the path: unix:///PATH has three slashes");
  }
  target.socket_path = absolute_path("/" + std::string(parts.path), "unix://");
  if (target.socket_path.size() >= sizeof(sockaddr_un::sun_path)) {
    throw_usage("the path of a socket is at most " +
                std::to_string(sizeof(sockaddr_un::sun_path) - 1) + " bytes");
  }
  while (!parts.query.empty()) {
    const UrlParameter parameter = take_parameter(parts.query);
    if (parameter.name != "db") {
      throw_usage("\"" + redacted(parameter.name) + "\" after the ? is unknown: unix:///PATH?db=N");
    }
    target.database = parse_db(parameter.value);
  }
  return target;
}

/// Refuses a host that libpq would quote with the password. It is `HOST`, `HOST:PORT` or
/// `[ADDRESS]:PORT`; a host may be a percent-encoded socket directory.
void check_postgres_host(std::string_view each) {
  if (each.starts_with('[')) {
    take_host(each);
  } else {
    refuse_colons(each);
    decoded(cut_until(each, ":"), "the host");
  }
  if (each != ":") port_in(each, 0);
}

/// Each connection reads a file again, and the attach daemon has another working directory.
std::string path_from(const UrlParameter& given) {
  if (given.value.starts_with('/')) return given.value;
  throw_usage(redacted(given.name) + " is not an absolute path: \"" + redacted(given.value) + "\"");
}

void check_postgres_parameter(const UrlParameter& given) {
  constexpr std::string_view files[] = {"sslrootcert", "sslcert",   "sslkey",
                                        "sslcrl",      "sslcrldir", "passfile"};
  const auto& [name, value] = given;
  if (name == "dlock-schema" && value.empty()) throw_usage("dlock-schema is empty");
  const bool is_file = std::find(std::begin(files), std::end(files), name) != std::end(files);
  const bool is_key_id = name == "sslkey" && value.find(':') < value.find('/');
  if (is_file && value != "system" && !value.empty() && !is_key_id) path_from(given);
}

/// libpq parses the URL, too, and refuses a wrong parameter when dlock connects.
SqlTarget parse_postgres(std::string_view text, std::string_view rest) {
#ifndef DLOCK_WITH_POSTGRESQL
  throw_usage("this dlock was built without PostgreSQL (DLOCK_POSTGRESQL is off)");
#endif
  UrlParts parts = url_parts(rest);
  const auto login = rest.substr(0, rest.find_first_of("/?"));
  if (login.find('@') != login.rfind('@')) throw_usage("an @ in a user or password is %40");
  for (auto hosts = parts.hosts; !hosts.empty();) check_postgres_host(take_until(hosts, ','));
  SqlTarget target{std::string(text), "postgres://" + escaped(percent_decoded(parts.hosts))};
  if (!parts.path.empty()) target.shown += "/" + escaped(decoded(parts.path, "the database"));
  if (parts.password) target.password = *parts.password;
  for (char mark = '?'; !parts.query.empty();) {
    const UrlParameter each = take_parameter(parts.query);
    check_postgres_parameter(each);
    if (each.name == "password") target.password = each.value;
    if (each.name != "host" && each.name != "port") continue;
    target.shown += std::exchange(mark, '&') + each.name + "=" + escaped(each.value);
  }
  return target;
}

MysqlAddress::Tls tls_from(const std::string& mode) {
  if (mode == "DISABLED") return MysqlAddress::Tls::off;
  if (mode == "REQUIRED") return MysqlAddress::Tls::encrypted;
  if (mode == "VERIFY_CA" || mode == "VERIFY_IDENTITY") return MysqlAddress::Tls::verified;
  throw_usage("invalid ssl-mode \"" + redacted(mode) +
              "\" (DISABLED, REQUIRED, VERIFY_CA, VERIFY_IDENTITY)");
}

void take_mysql_parameters(std::string_view query, MysqlAddress& address) {
  std::string mode;
  while (!query.empty()) {
    const UrlParameter given = take_parameter(query);
    if (given.name == "socket") {
      address.socket_path = path_from(given);
    } else if (given.name == "ssl-ca") {
      address.ca = path_from(given);
    } else if (given.name == "ssl-cert") {
      address.certificate = path_from(given);
    } else if (given.name == "ssl-key") {
      address.key = path_from(given);
    } else if (given.name == "ssl-mode") {
      mode = given.value;
    } else {
      throw_usage(
          "\"" + redacted(given.name) + "\" after the ? is unknown" +
          did_you_mean(given.name, {"socket", "ssl-mode", "ssl-ca", "ssl-cert", "ssl-key"}));
    }
  }
  // A CA file is given to verify the server, so it implies verification.
  if (!address.ca.empty()) address.tls = MysqlAddress::Tls::verified;
  if (!mode.empty()) address.tls = tls_from(mode);
  const bool unused = !address.ca.empty() && address.tls != MysqlAddress::Tls::verified;
  if (unused) throw_usage("ssl-ca verifies a server only with ssl-mode=VERIFY_IDENTITY");
}

/// The client library of MySQL and MariaDB takes no URL.
SqlTarget parse_mysql(std::string_view scheme, std::string_view rest) {
#ifndef DLOCK_WITH_MYSQL
  throw_usage("this dlock was built without MySQL and MariaDB (DLOCK_MYSQL is off)");
#endif
  const UrlParts parts = url_parts(rest);
  const std::string begin = std::string(scheme) + "://";
  if (parts.hosts.find(',') != std::string_view::npos) {
    throw_usage("a URL of MySQL or MariaDB names one host");
  }
  MysqlAddress address;
  address.user = parts.user;
  if (auto hosts = parts.hosts; !hosts.empty()) {
    address.host = take_host(hosts);
    address.port = port_in(hosts, 0);
  }
  address.database = decoded(parts.path, "the database");
  if (address.database.empty()) {
    throw_usage("the database is missing: " + begin + "HOST[:PORT]/DB");
  }
  take_mysql_parameters(parts.query, address);
  if (!address.host.empty() && !address.socket_path.empty()) {
    throw_usage("a URL names a host or a socket, not both: " + begin +
                "/DB?socket=/PATH has three slashes");
  }
  SqlTarget target{"",
                   begin + escaped(percent_decoded(parts.hosts)) + "/" + escaped(address.database)};
  if (!address.socket_path.empty()) target.shown += "?socket=" + escaped(address.socket_path);
  if (parts.password) target.password = *parts.password;
  target.mysql = std::move(address);
  return target;
}

[[noreturn]] void refuse_scheme(std::string_view scheme) {
  // Some clients and Docker's links use tcp:// for Redis.
  const std::string meant = scheme == "tcp" ? "redis" : std::string(scheme);
  std::vector<std::string> known;
  for (std::string_view words = option("server").value.words; !words.empty();) {
    known.emplace_back(take_until(words, ' '));
  }
  const std::string suggestion = did_you_mean(meant + "://", known);
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
  // `$(cat ...)` of other shells, or a user, may leave a line end in a file or variable.
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
  if (scheme == "postgres" || scheme == "postgresql") return parse_postgres(text, rest);
  if (scheme == "mysql" || scheme == "mariadb") return parse_mysql(scheme, rest);
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
