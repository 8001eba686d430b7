#include "support/tls_databases.hpp"

#include <sys/stat.h>

#include "support/database_server.hpp"

namespace dlock::test {
namespace {

constexpr const char* tls_host = "127.0.0.2";
constexpr const char* tls_user = "alice";
constexpr const char* tls_password = "secret";

/// The same certificate, made readable for the user that a server runs as.
const Certificate& readable_for(const std::string& name, const TestCa& ca,
                                const Certificate& certificate) {
  const ServiceUser user(name);
  user.own(ca.dir().path());
  user.own(certificate.key);
  chmod(certificate.key.c_str(), 0600);
  return certificate;
}

PostgresOptions with_tls(const Certificate& own) {
  return {true,
          {"ssl=on", "ssl_cert_file=" + own.file, "ssl_key_file=" + own.key},
          "local all all trust\nhostssl all all 127.0.0.1/32 trust\n"};
}

}  // namespace

TlsDatabase<PostgresServer>::TlsDatabase(const TestCa& ca, const Certificate& own)
    : server(with_tls(readable_for("postgres", ca, own))) {}

std::string TlsDatabase<PostgresServer>::url(const std::string& ca) const {
  return server.tcp_url("postgres") + "?sslmode=verify-full&sslrootcert=" + ca;
}

TlsDatabase<MariaDbServer>::TlsDatabase(const TestCa& ca, const Certificate& own)
    : server({"--ssl-cert=" + readable_for("mysql", ca, own).file, "--ssl-key=" + own.key,
              std::string("--bind-address=") + tls_host}) {
  server.make_user(tls_user, tls_password, true);
}

MysqlAddress TlsDatabase<MariaDbServer>::address(const std::string& ca) const {
  MysqlAddress address = server.address(true);
  address.host = tls_host;
  address.user = tls_user;
  address.password = tls_password;
  address.tls = MysqlAddress::Tls::verified;
  address.ca = ca;
  return address;
}

std::string TlsDatabase<MariaDbServer>::url(const std::string& ca) const {
  const MysqlAddress at = address(ca);
  return "mysql://" + *at.user + ":" + at.password->text({}) + "@" + at.host + ":" +
         std::to_string(at.port) + "/" + at.database + "?ssl-mode=VERIFY_IDENTITY&ssl-ca=" + ca;
}

}  // namespace dlock::test
