#include "config/database_url.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/text.hpp"
#include "config/redaction.hpp"
#include "config/suggestion.hpp"
#include "config/url_parts.hpp"

namespace dlock {
namespace {

void refuse_fragment(std::string_view rest) {
  if (rest.find('#') == std::string_view::npos) return;
  throw_usage("a # stands in the URL: in a user, password or name it is written %23");
}

/// `host=` and `port=` of a query, which tell where the database is.
std::string shown_address(std::string_view query) {
  std::string shown;
  while (!query.empty()) {
    const std::string parameter = percent_decoded(take_until(query, '&'));
    if (!parameter.starts_with("host=") && !parameter.starts_with("port=")) continue;
    shown += (shown.empty() ? "?" : "&") + escaped(parameter);
  }
  return shown;
}

/// libpq quotes what it cannot read, passwords too: so what it would refuse is refused before.
void check_login(std::string_view login) {
  if (login.find('@') != std::string_view::npos) throw_usage("an @ in a user or password is %40");
  decoded(cut_until(login, ":"), "the user");
  decoded(login, "the password");
}

/// `HOST`, `HOST:PORT` or `[ADDRESS]:PORT`; a host may be a directory of sockets, percent-encoded.
void check_postgres_host(std::string_view each) {
  if (each.starts_with('[')) {
    take_host(each);
    if (!each.empty() && each.front() != ':')
      throw_usage("after an address in brackets comes :PORT");
  } else {
    if (std::count(each.begin(), each.end(), ':') > 1) refuse_colons();
    decoded(cut_until(each, ":"), "the host");
  }
  if (each.size() > 1) parse_port(each.substr(1));
}

std::string path_from(const std::string& name, std::string value) {
  if (value.starts_with('/')) return value;
  throw_usage(name + " is not an absolute path: \"" + redacted(value) + "\"");
}

/// The parameters of libpq 18, of those before it, one of the next, and dlock's own. `ssl` and
/// `requiressl` stand for an sslmode:
/// https://www.postgresql.org/docs/18/libpq-connect.html#LIBPQ-PARAMKEYWORDS
constexpr std::string_view postgres_parameters =
    "host hostaddr port dbname user password passfile require_auth channel_binding "
    "connect_timeout client_encoding options application_name fallback_application_name "
    "keepalives keepalives_idle keepalives_interval keepalives_count tcp_user_timeout "
    "replication gssencmode sslmode ssl requiressl sslnegotiation sslcompression sslcert sslkey "
    "sslkeylogfile sslpassword sslcertmode sslrootcert sslcrl sslcrldir sslsni requirepeer "
    "ssl_min_protocol_version ssl_max_protocol_version min_protocol_version "
    "max_protocol_version krbsrvname gsslib gssdelegation scram_client_key scram_server_key "
    "service servicefile target_session_attrs load_balance_hosts oauth_issuer oauth_client_id "
    "oauth_client_secret oauth_scope oauth_ca_file dlock-schema";

void check_postgres_name(const std::string& name, bool behind_password) {
  std::vector<std::string> known;
  for (auto rest = postgres_parameters; !rest.empty();) known.emplace_back(take_until(rest, ' '));
  if (std::find(known.begin(), known.end(), name) != known.end()) return;
  // It may be the rest of the password.
  if (behind_password) {
    throw_usage("after the password an unknown parameter follows: an & in a password is %26");
  }
  // A newer libpq may know more, but nothing that looks so like these.
  const std::string guess = did_you_mean(name, known);
  if (!guess.empty() || name.empty())
    throw_usage("\"" + redacted(name) + "\" after the ? is unknown" + guess);
}

/// libpq would refuse these on each connection, as if the server could not be reached.
void check_postgres_value(const std::string& name, const std::string& value) {
  const auto is_one_of = [&](const std::vector<std::string>& values) {
    if (std::find(values.begin(), values.end(), value) != values.end()) return;
    throw_usage("invalid " + name + " \"" + redacted(value) + "\" (" + joined(values, ", ") + ")");
  };
  if (name == "sslmode") {
    is_one_of({"disable", "allow", "prefer", "require", "verify-ca", "verify-full"});
  } else if (name == "target_session_attrs") {
    is_one_of({"any", "read-write", "read-only", "primary", "standby", "prefer-standby"});
  } else if (name == "ssl") {
    is_one_of({"true"});
  } else if (name == "dlock-schema" && value.empty()) {
    throw_usage("dlock-schema is empty");
  }
}

/// Whether one of the parameters is the password of the user.
bool check_postgres_parameters(std::string_view query) {
  bool has_password = false;
  bool behind_password = false;
  while (!query.empty()) {
    auto value = take_until(query, '&');
    const bool has_value = value.find('=') != std::string_view::npos;
    if (!has_value) throw_usage("after the ? comes NAME=VALUE, and more of them after an &");
    const std::string name = decoded(take_until(value, '='), "the name of a parameter");
    check_postgres_name(name, behind_password);
    const std::string path = decoded(value, redacted(name));
    check_postgres_value(name, path);
    has_password = has_password || name == "password";
    behind_password = behind_password || is_secret_name(name);
    constexpr std::string_view files[] = {"sslrootcert", "sslcert",   "sslkey",
                                          "sslcrl",      "sslcrldir", "passfile"};
    const bool is_file = std::find(std::begin(files), std::end(files), name) != std::end(files);
    // Read for each connection, by a process that stands elsewhere (acquire --attach).
    const bool is_key_id = name == "sslkey" && path.find(':') < path.find('/');
    if (is_file && path != "system" && !path.empty() && !is_key_id) path_from(name, path);
  }
  return has_password;
}

/// `user:pw@` or `user@`, cut off the front of `authority`.
void take_login(std::string_view& authority, MysqlAddress& address) {
  const auto at = authority.rfind('@');
  if (at == std::string_view::npos) return;
  auto login = authority.substr(0, at);
  authority.remove_prefix(at + 1);
  const auto user = cut_until(login, ":");
  if (!user.empty()) address.user = decoded(user, "the user");
  if (!login.empty()) address.password = decoded(login.substr(1), "the password");
  const bool none = !address.user && !address.password;
  if (none) throw_usage("nothing comes before the @: drop it, or write user:password@");
}

/// `HOST` or `HOST:PORT`.
void take_host_and_port(std::string_view authority, MysqlAddress& address) {
  if (authority.empty()) return;
  if (authority.find(',') != std::string_view::npos) {
    throw_usage("a URL of MySQL or MariaDB names one host");
  }
  address.host = take_host(authority);
  if (authority.empty()) return;
  if (authority.front() != ':') {
    throw_usage("\"" + redacted(authority) + "\" after the host is not :PORT");
  }
  address.port = parse_port(authority.substr(1));
}

MysqlAddress::Tls tls_from(const std::string& mode) {
  if (mode == "DISABLED") return MysqlAddress::Tls::off;
  if (mode == "REQUIRED") return MysqlAddress::Tls::encrypted;
  if (mode == "VERIFY_CA" || mode == "VERIFY_IDENTITY") return MysqlAddress::Tls::verified;
  throw_usage("invalid ssl-mode \"" + redacted(mode) +
              "\" (DISABLED, REQUIRED, VERIFY_CA, VERIFY_IDENTITY)");
}

/// Of `NAME=VALUE&...`.
void take_parameters(std::string_view query, MysqlAddress& address) {
  std::string mode;
  while (!query.empty()) {
    auto parameter = take_until(query, '&');
    const std::string name(take_until(parameter, '='));
    std::string value = decoded(parameter, redacted(name));
    if (name == "socket") {
      address.socket_path = path_from(name, std::move(value));
    } else if (name == "ssl-ca") {
      address.ca = path_from(name, std::move(value));
    } else if (name == "ssl-cert") {
      address.certificate = path_from(name, std::move(value));
    } else if (name == "ssl-key") {
      address.key = path_from(name, std::move(value));
    } else if (name == "ssl-mode") {
      mode = std::move(value);
    } else {
      throw_usage("\"" + redacted(name) + "\" after the ? is unknown" +
                  did_you_mean(name, {"socket", "ssl-mode", "ssl-ca", "ssl-cert", "ssl-key"}));
    }
  }
  // A certificate to verify by is there to be verified by.
  if (!address.ca.empty()) address.tls = MysqlAddress::Tls::verified;
  if (!mode.empty()) address.tls = tls_from(mode);
  const bool unused = !address.ca.empty() && address.tls != MysqlAddress::Tls::verified;
  if (unused) throw_usage("ssl-ca verifies a server only with ssl-mode=VERIFY_IDENTITY");
}

std::string shown_url(std::string_view scheme, std::string_view authority,
                      const MysqlAddress& address) {
  return std::string(scheme) + "://" + escaped(percent_decoded(authority)) + "/" +
         escaped(address.database) +
         (address.socket_path.empty() ? "" : "?socket=" + escaped(address.socket_path));
}

}  // namespace

SqlTarget parse_postgres_url(std::string_view text, std::string_view rest) {
#ifndef DLOCK_WITH_POSTGRESQL
  throw_usage("this dlock was built without PostgreSQL (DLOCK_POSTGRESQL is off)");
#endif
  refuse_fragment(rest);
  auto authority = take_authority(rest, false);
  const auto at = authority.rfind('@');
  SqlTarget target;
  target.url = std::string(text);
  if (at != std::string_view::npos) {
    const auto login = authority.substr(0, at);
    check_login(login);
    target.has_password = login.find(':') != std::string_view::npos;
    authority.remove_prefix(at + 1);
  }
  for (auto hosts = authority; !hosts.empty();) check_postgres_host(take_until(hosts, ','));
  const auto path = cut_until(rest, "?");
  decoded(path, "the database");
  if (!rest.empty()) rest.remove_prefix(1);
  target.has_password |= check_postgres_parameters(rest);
  target.shown = "postgres://" + escaped(percent_decoded(authority)) +
                 escaped(percent_decoded(path)) + shown_address(rest);
  return target;
}

SqlTarget parse_mysql_url(std::string_view scheme, std::string_view rest) {
#ifndef DLOCK_WITH_MYSQL
  throw_usage("this dlock was built without MySQL and MariaDB (DLOCK_MYSQL is off)");
#endif
  refuse_fragment(rest);
  SqlTarget target;
  MysqlAddress& address = target.mysql.emplace();
  auto authority = take_authority(rest, false);
  take_login(authority, address);
  take_host_and_port(authority, address);
  if (rest.starts_with('/')) rest.remove_prefix(1);
  address.database = decoded(cut_until(rest, "?"), "the database");
  if (address.database.empty()) {
    throw_usage("the database is missing: " + std::string(scheme) + "://HOST[:PORT]/DB");
  }
  if (!rest.empty()) take_parameters(rest.substr(1), address);
  if (!address.host.empty() && !address.socket_path.empty()) {
    throw_usage("a URL names a host or a socket, not both: " + std::string(scheme) +
                ":///DB?socket=/PATH has three slashes");
  }
  target.has_password = address.password.has_value();
  target.shown = shown_url(scheme, authority, address);
  return target;
}

}  // namespace dlock
