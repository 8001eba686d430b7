#pragma once

#include <string>

#include "support/mariadb_server.hpp"
#include "support/postgres_server.hpp"
#include "support/tls_files.hpp"

namespace dlock::test {

/// A database server that speaks TLS with a certificate, and how a client reaches it that verifies
/// the certificate.
template <typename Server>
class TlsDatabase;

template <>
class TlsDatabase<PostgresServer> {
 public:
  /// The names that a good certificate has.
  static constexpr const char* names = loopback_names;

  TlsDatabase(const TestCa& ca, const Certificate& own);
  /// `ca`: the file with the authority that the client trusts.
  std::string url(const std::string& ca) const;

  PostgresServer server;
};

/// libmariadb 3.4.2 and newer does not compare the name of a server at 127.0.0.1 with that in its
/// certificate: this one is at another address of the loopback.
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
