#include "config/server_url.hpp"

#include <sys/un.h>

#include <algorithm>
#include <cctype>
#include <climits>
#include <utility>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/process.hpp"
#include "base/text.hpp"
#include "config/command_line.hpp"
#include "config/secrets.hpp"
#include "config/url_parts.hpp"

namespace dlock {
namespace {

LocalTarget parse_local(std::string_view rest) {
  if (rest.empty()) return {};
  if (rest.find_first_of("?#") != std::string_view::npos) {
    throw_usage("nothing may follow local:/DIR; in a name ? is %3F and # is %23");
  }
  if (rest.starts_with("///")) rest.remove_prefix(2);  // as in file: URLs
  return LocalTarget{absolute_path(decoded(rest, "the path"), "the directory of local:")};
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

SentinelTarget parse_sentinel(std::string_view rest, bool tls) {
  constexpr const char* form = "redis+sentinel://HOST[:PORT],.../NAME[/DB]";
  UrlParts parts = url_parts(rest, form);
  const auto name = cut_until(parts.path, "/");
  if (name.empty()) throw_usage(std::string("the name of the master is missing: ") + form);
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
  constexpr const char* form = "redis+cluster://HOST[:PORT],...";
  const UrlParts parts = url_parts(rest, form);
  if (!parts.path.empty() && parse_db(parts.path) != 0) {
    throw_usage(std::string("a Cluster has database 0 only: ") + form);
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

/// Parses the path of a ZooKeeper node. ZooKeeper permits no name that is empty, `.` or `..`.
std::string chroot_from(std::string_view path) {
  std::string chroot;
  while (!path.empty()) {
    const std::string name = decoded(take_until(path, '/'), "the path");
    const bool allowed = !name.empty() && name != "." && name != ".." &&
                         name.find('/') == std::string::npos && escaped(name) == name;
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

KubeTarget parse_kubernetes(std::string_view rest) {
#ifndef DLOCK_WITH_KUBERNETES
  throw_usage("this dlock was built without Kubernetes (DLOCK_KUBERNETES is off)");
#endif
  constexpr const char* form = "k8s://[NAMESPACE][?context=NAME]";
  UrlParts parts = url_parts(rest, true);
  KubeTarget target{std::string(parts.hosts)};
  const bool plain = std::all_of(parts.hosts.begin(), parts.hosts.end(), [](unsigned char c) {
    return c == '-' || std::isdigit(c) != 0 || std::islower(c) != 0;
  });
  if (parts.user || parts.password || !parts.path.empty() || !plain) {
    throw_usage(std::string("a namespace has lower-case letters, digits and dashes: ") + form);
  }
  while (!parts.query.empty()) {
    const UrlParameter parameter = take_parameter(parts.query);
    if (parameter.name != "context") {
      throw_usage("\"" + redacted(parameter.name) + "\" after the ? is unknown: " + form);
    }
    target.context = parameter.value;
  }
  return target;
}

/// Each client library spreads keys over several memcached by rules of its own.
MemcachedTarget parse_memcached(std::string_view rest) {
  constexpr int usual_memcached_port = 11211;
  UrlParts parts = url_parts(rest, "memcached://HOST[:PORT]");
  if (!parts.path.empty()) throw_usage("nothing may follow memcached://HOST[:PORT]");
  if (parts.user || parts.password) throw_usage("memcached:// takes no user and no password");
  if (parts.hosts.find(',') != std::string_view::npos) {
    throw_usage("memcached:// takes one host: clients disagree on which of several keeps a key");
  }
  MemcachedTarget target;
  target.at.host = take_host(parts.hosts);
  target.at.port = port_in(parts.hosts, usual_memcached_port);
  return target;
}

/// The value of the first of AWS's variables that is set.
std::string aws_setting(const char* first, const char* second) {
  const std::string value = variable(first);
  return value.empty() ? variable(second) : value;
}

bool has_only(std::string_view text, std::string_view marks) {
  return std::all_of(text.begin(), text.end(), [&](unsigned char c) {
    return std::isalnum(c) != 0 || marks.find(static_cast<char>(c)) != std::string_view::npos;
  });
}

/// Takes `http[s]://HOST[:PORT]`.
Endpoint s3_server(std::string_view url) {
  constexpr std::string_view plain = "http://", encrypted = "https://";
  constexpr int http_port = 80, https_port = 443;
  const bool tls = url.starts_with(encrypted);
  if (!tls && !url.starts_with(plain)) {
    throw_usage("the endpoint \"" + redacted(url) + "\" is not http[s]://HOST[:PORT]");
  }
  url.remove_prefix(tls ? encrypted.size() : plain.size());
  if (url.ends_with('/')) url.remove_suffix(1);
  Endpoint server;
  if (tls) server.tls.emplace();
  server.host = take_host(url);
  server.port = port_in(url, tls ? https_port : http_port);
  return server;
}

S3Target parse_s3(std::string_view rest) {
#ifndef DLOCK_WITH_S3
  throw_usage("this dlock was built without S3 (DLOCK_S3 is off)");
#endif
  UrlParts parts = url_parts(rest);
  if (parts.user || parts.password) {
    throw_usage("s3:// takes no login: AWS_ACCESS_KEY_ID, AWS_PROFILE and others give it");
  }
  S3Target target;
  target.bucket = parts.hosts;
  if (target.bucket.empty()) throw_usage("the bucket is missing: s3://BUCKET[/FOLDER]");
  while (parts.path.ends_with('/')) parts.path.remove_suffix(1);
  target.folder = parts.path.empty() ? "dlock" : parts.path;
  target.endpoint = aws_setting("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL");
  target.region = aws_setting("AWS_REGION", "AWS_DEFAULT_REGION");
  while (!parts.query.empty()) {
    const UrlParameter given = take_parameter(parts.query);
    if (given.name != "endpoint" && given.name != "region") {
      throw_usage("\"" + redacted(given.name) + "\" after the ? is none of endpoint and region");
    }
    (given.name == "region" ? target.region : target.endpoint) = given.value;
  }
  if (target.region.empty()) target.region = "us-east-1";
  // Others would be written differently in the URL of a request and in its signature.
  const bool is_plain = has_only(target.bucket, "-._") && has_only(target.region, "-") &&
                        has_only(target.folder, "-._/") &&
                        target.folder.find("//") == std::string::npos;
  if (!is_plain) throw_usage("bucket, folder and region have only letters, digits and - . _");
  // A bucket with a dot has no certificate of its own.
  target.bucket_in_path = !target.endpoint.empty() || target.bucket.find('.') != std::string::npos;
  const std::string host = "s3." + target.region + ".amazonaws.com";
  target.servers = {s3_server(!target.endpoint.empty() ? target.endpoint
                              : target.bucket_in_path  ? "https://" + host
                                                       : "https://" + target.bucket + "." + host)};
  return target;
}

Endpoint parse_unix(std::string_view rest) {
  UrlParts parts = url_parts(rest, rest.starts_with('/'));
  Endpoint target = parts.login(false);
  if (!parts.hosts.empty() || parts.path.empty()) {
    throw_usage("\"" + redacted(parts.hosts) +
                "\" comes before the path: unix:///PATH has three slashes");
  }
  target.socket_path = absolute_path("/" + decoded(parts.path, "the path"), "the socket");
  if (target.socket_path.size() >= sizeof(sockaddr_un::sun_path)) {
    throw_usage("the path of a socket is at most 107 bytes");
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

/// Refuses an invalid host here, because libpq's message would show the password. A valid one is
/// `HOST`, `HOST:PORT` or `[ADDRESS]:PORT`; HOST may be a percent-encoded socket directory.
void check_postgres_host(std::string_view each) {
  if (each.starts_with('[')) {
    take_host(each);
  } else {
    refuse_colons(each);
    decoded(cut_until(each, ":"), "the host");
  }
  if (each != ":") port_in(each, 0);
}

void check_postgres_parameter(const UrlParameter& given) {
  constexpr std::string_view files[] = {"sslrootcert", "sslcert",   "sslkey",
                                        "sslcrl",      "sslcrldir", "passfile"};
  const auto& [name, value] = given;
  if (name == "dlock-schema" && value.empty()) throw_usage("dlock-schema is empty");
  const bool is_file = std::find(std::begin(files), std::end(files), name) != std::end(files);
  const bool is_key_id = name == "sslkey" && value.find(':') < value.find('/');
  if (is_file && value != "system" && !value.empty() && !is_key_id) absolute_path(value, name);
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
  const std::pair<const char*, std::string*> places[] = {{"socket", &address.socket_path},
                                                         {"ssl-mode", &mode},
                                                         {"ssl-ca", &address.ca},
                                                         {"ssl-cert", &address.certificate},
                                                         {"ssl-key", &address.key}};
  while (!query.empty()) {
    const UrlParameter given = take_parameter(query);
    const auto place = std::find_if(std::begin(places), std::end(places),
                                    [&](const auto& each) { return each.first == given.name; });
    if (place == std::end(places)) {
      throw_usage("\"" + redacted(given.name) + "\" after the ? is none of socket, " +
                  "ssl-mode, ssl-ca, ssl-cert and ssl-key");
    }
    *place->second = place->second == &mode ? given.value : absolute_path(given.value, given.name);
  }
  // A CA file is given to verify the server, so it implies verification.
  if (!address.ca.empty()) address.tls = MysqlAddress::Tls::verified;
  if (!mode.empty()) address.tls = tls_from(mode);
  const bool unused = !address.ca.empty() && address.tls != MysqlAddress::Tls::verified;
  if (unused) throw_usage("ssl-ca verifies a server only with ssl-mode=VERIFY_IDENTITY");
}

/// Splits the URL, because the client library of MySQL and MariaDB takes none.
SqlTarget parse_mysql(std::string_view scheme, std::string_view rest) {
#ifndef DLOCK_WITH_MYSQL
  throw_usage("this dlock was built without MySQL and MariaDB (DLOCK_MYSQL is off)");
#endif
  const UrlParts parts = url_parts(rest);
  const std::string begin = std::string(scheme) + "://";
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
    throw_usage("a URL names a host or a socket, not both: " + begin + "/DB?socket=/PATH");
  }
  SqlTarget target{"",
                   begin + escaped(percent_decoded(parts.hosts)) + "/" + escaped(address.database)};
  if (!address.socket_path.empty()) target.shown += "?socket=" + escaped(address.socket_path);
  if (parts.password) target.password = *parts.password;
  target.mysql = std::move(address);
  return target;
}

[[noreturn]] void refuse_scheme(std::string_view scheme) {
  std::vector<std::string> known;
  for (std::string_view words = beginnings_of_urls; !words.empty();) {
    known.emplace_back(take_until(words, ' '));
  }
  const std::string name = std::string(scheme) + "://", suggestion = did_you_mean(name, known);
  throw_usage("unknown scheme " + redacted(name) +
              (suggestion.empty() ? ": it is one of " + joined(known, " ") : suggestion));
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

std::string KubeTarget::name() const {
  return "k8s://" + name_space + (context.empty() ? "" : "?context=" + escaped(context));
}

std::string S3Target::name() const {
  return "s3://" + bucket + "/" + folder +
         (endpoint.empty() ? "" : "?endpoint=" + escaped(endpoint));
}

Target parse_server_url(std::string_view text) {
  // `$(cat ...)` of other shells, or a user, may leave a line end in a file or variable.
  while (text.ends_with('\n') || text.ends_with('\r')) text.remove_suffix(1);
  if (text.starts_with('"') || text.starts_with('\'')) throw_usage("the URL begins with a quote");
  if (text.starts_with("local:")) return parse_local(text.substr(6));
  const auto colon = text.find("://");
  if (colon == std::string_view::npos) {
    throw_usage("invalid URL \"" + redacted(text) +
                "\": expected local:[/DIR], redis://HOST[:PORT][/DB] or unix:///PATH[?db=N]");
  }
  const auto scheme = text.substr(0, colon), rest = text.substr(colon + 3);
  if (scheme == "tcp") throw_usage("unknown scheme tcp://: did you mean redis://?");
  if (scheme == "unix") return parse_unix(rest);
  if (scheme == "postgres" || scheme == "postgresql") return parse_postgres(text, rest);
  if (scheme == "mysql" || scheme == "mariadb") return parse_mysql(scheme, rest);
  if (scheme == "etcd" || scheme == "etcds") return parse_etcd(rest, scheme == "etcds");
  if (scheme == "k8s") return parse_kubernetes(rest);
  if (scheme == "s3") return parse_s3(rest);
  if (scheme == "zk") return parse_zookeeper(rest);
  if (scheme == "memcached") return parse_memcached(rest);
  if (scheme == "zks") throw_usage("zks://: ZooKeeper's library comes without TLS: write zk://");
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
