#pragma once

#include <optional>
#include <string>

#include "base/endpoint.hpp"

namespace dlock {

/// A database of MySQL or MariaDB, and how to log in to it. The client library has an
/// empty field in its option files, or a default for it.
struct MysqlAddress {
  /// The proof that a connection must give before the client sends a password on it.
  enum class Tls {
    library,    ///< as the library's option files say
    off,        ///< nothing, and it is not encrypted
    encrypted,  ///< nothing
    verified,   ///< the certificate and the name of the server
  };

  std::string host;         ///< IPv6 without brackets; empty: a socket of this host
  int port = 0;             ///< 0: the library's
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

}  // namespace dlock
