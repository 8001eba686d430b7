#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/endpoint.hpp"
#include "cas/cas_backend.hpp"

namespace dlock {

// The interface of the databases for other folders, without headers of the client libraries.

/// A database of MySQL or MariaDB, and how to log in to it. For an empty field, the client library
/// uses its option files or its default.
struct MysqlAddress {
  /// The proof that a connection must give before the client sends a password on it.
  enum class Tls {
    library,    ///< as the library's option files say
    off,        ///< no proof, and no encryption
    encrypted,  ///< no proof, but encryption
    verified,   ///< the certificate and the name of the server
  };

  std::string host;         ///< IPv6 without brackets; empty: a socket of this host
  int port = 0;             ///< 0: the library's default
  std::string socket_path;  ///< of a Unix socket, in place of host and port
  std::string database;
  std::optional<std::string> user{};
  std::optional<Password> password{};
  Tls tls = Tls::library;
  std::string ca{};           ///< PEM file
  std::string certificate{};  ///< PEM file of the client
  std::string key{};          ///< PEM file of the client
  bool operator==(const MysqlAddress&) const = default;
};

/// The PostgreSQL database of a URL, not connected yet. `shown`: the URL for users; `password`
/// overrides any other.
std::unique_ptr<CasBackend> open_postgres(const std::string& url, const std::string& shown,
                                          const std::optional<Password>& password = {});

/// The same for MySQL and MariaDB.
std::unique_ptr<CasBackend> open_mysql(MysqlAddress address, const std::string& shown,
                                       const std::optional<Password>& password = {});

}  // namespace dlock
