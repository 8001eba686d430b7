#include "sql/mysql_error.hpp"

#include <errmsg.h>
#include <mysqld_error.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "base/text.hpp"
#include "sql/tls_error.hpp"

namespace dlock {
namespace {

bool refuses_login(unsigned error) {
  constexpr unsigned account_is_locked[] = {ER_ACCOUNT_HAS_BEEN_LOCKED, 3118};  // MariaDB, MySQL
  switch (error) {
    case ER_ACCESS_DENIED_ERROR:
    case ER_ACCESS_DENIED_NO_PASSWORD_ERROR:
    case ER_DBACCESS_DENIED_ERROR:
    case ER_HOST_NOT_PRIVILEGED:
    case ER_MUST_CHANGE_PASSWORD_LOGIN:
    case CR_AUTH_PLUGIN_CANNOT_LOAD:
      return true;
    default:
      return error == account_is_locked[0] || error == account_is_locked[1];
  }
}

bool is_full(unsigned error) {
  return error == ER_CON_COUNT_ERROR || error == ER_TOO_MANY_USER_CONNECTIONS ||
         error == ER_USER_LIMIT_REACHED;
}

/// Whether a text on TLS tells of the connection, or of a server in trouble: both may pass.
bool is_of_connection(const std::string& message) {
  constexpr std::string_view of_connection[] = {"eof",
                                                "onnection",
                                                "eset",
                                                "roken pipe",
                                                "imed out",
                                                "record",
                                                "wrong version",
                                                "internal error",
                                                "handshake failure",
                                                "protocol version",
                                                "unsupported protocol",
                                                "does not support"};
  return std::any_of(
      std::begin(of_connection), std::end(of_connection),
      [&](std::string_view what) { return message.find(what) != std::string::npos; });
}

/// For a certificate that is not accepted OpenSSL has a hundred texts, so that it is what remains.
ErrorKind kind_of_tls(const std::string& message) {
  const ErrorKind kind = tls_error_kind(message);
  const bool may_pass = kind == ErrorKind::unavailable && is_of_connection(message);
  return kind == ErrorKind::usage || may_pass ? kind : ErrorKind::denied;
}

/// The library names no file that it cannot read, and its "No such file or directory" may be left
/// over from an earlier call: the files themselves tell.
std::optional<std::string> unreadable_file(const MysqlAddress& address) {
  for (const auto& [option, path] :
       {std::pair("ssl-ca", &address.ca), std::pair("ssl-cert", &address.certificate),
        std::pair("ssl-key", &address.key)}) {
    if (path->empty() || access(path->c_str(), R_OK) == 0) continue;
    const char* const why = std::strerror(errno);
    return std::string(option) + ": cannot read \"" + escaped(*path) + "\": " + why;
  }
  return std::nullopt;
}

}  // namespace

bool is_of_library(unsigned error) {
  constexpr unsigned of_mariadb = 5000;
  return (error >= CR_MIN_ERROR && error <= CR_MAX_ERROR) || error >= of_mariadb;
}

bool was_not_reached(unsigned error, const std::string& message) {
  if (error == CR_SSL_CONNECTION_ERROR) {
    return kind_of_tls(message) == ErrorKind::unavailable;
  }
  return error == CR_CONN_HOST_ERROR || error == CR_CONNECTION_ERROR || error == CR_SERVER_LOST;
}

Error connect_error(unsigned error, const std::string& message, const MysqlAddress& address,
                    const std::string& shown) {
  const std::string said = shown + ": " + escaped(message);
  if (error != CR_SSL_CONNECTION_ERROR) {
    if (refuses_login(error)) return {ErrorKind::denied, said, Cause::password_wrong};
    return {ErrorKind::unavailable, said, is_full(error) ? Cause::too_many_clients : Cause::none};
  }
  if (const auto fault = unreadable_file(address)) {
    return {ErrorKind::usage, shown + ": " + *fault};
  }
  const ErrorKind kind = kind_of_tls(message);
  return {kind, said, kind == ErrorKind::denied ? Cause::certificate : Cause::none};
}

}  // namespace dlock
