#pragma once

#include <string>

#include "support/mariadb_server.hpp"
#include "support/postgres_server.hpp"
#include "support/tls_files.hpp"

namespace dlock::test {

/// A database server with TLS and a certificate, and the URL of a client that verifies it.
template <typename Server>
class TlsDatabase;

template <>
class TlsDatabase<PostgresServer> {
 public:
  /// The names in a good certificate.
  static constexpr const char* names = loopback_names;

  TlsDatabase(const TestCa& ca, const Certificate& own);
  /// `ca` is the file with the CA that the client trusts.
  std::string url(const std::string& ca) const;

  PostgresServer server;
};

/// libmariadb 3.4.2 and newer does not check the certificate's name for a server at 127.0.0.1, so
/// this one uses another loopback address.
template <>
class TlsDatabase<MariaDbServer> {
 public:
  static constexpr const char* names = "IP:127.0.0.2";

  TlsDatabase(const TestCa& ca, const Certificate& own);
  std::string url(const std::string& ca) const;
  MysqlAddress address(const std::string& ca) const;

  MariaDbServer server;
};

}  // namespace dlock::test
