#include "sql/database.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#ifdef DLOCK_WITH_POSTGRESQL
#include "sql/postgres_backend.hpp"
#endif
#ifdef DLOCK_WITH_MYSQL
#include "sql/mysql_backend.hpp"
#endif

namespace dlock {
namespace {

/// Returns the text in lower case and without quoted parts: names of hosts and files do not show
/// the kind.
std::string plain_words(std::string_view said) {
  std::string words;
  bool quoted = false;
  for (const char c : said) {
    if (c == '"') quoted = !quoted;
    if (!quoted) words += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return words;
}

}  // namespace

ErrorKind tls_error_kind(std::string_view said) {
  // Check these first, because they contain "certificate", too.
  constexpr std::string_view of_files[] = {
      "certificate file", "private key file",    "no certificate or crl found",
      "no start line",    "key values mismatch", "key type mismatch"};
  // These are the alerts about certificates and names; other alerts indicate a server problem.
  constexpr std::string_view of_trust[] = {
      "certificate",         "hostname mismatch", "hostname verification", "does not match",
      "ip address mismatch", "fingerprint",       "finger print",          "crl ",
      "unknown ca",          "unrecognized name", "access denied"};
  const std::string words = plain_words(said);
  const auto names = [&](std::string_view what) { return words.find(what) != std::string::npos; };
  if (std::any_of(std::begin(of_files), std::end(of_files), names)) return ErrorKind::usage;
  if (std::any_of(std::begin(of_trust), std::end(of_trust), names)) return ErrorKind::denied;
  return ErrorKind::unavailable;
}

#ifdef DLOCK_WITH_POSTGRESQL
std::unique_ptr<CasBackend> open_postgres(const std::string& url, const std::string& shown,
                                          const std::optional<Password>& password) {
  return std::make_unique<PostgresBackend>(PostgresTerms{url, password, shown});
}
#else
std::unique_ptr<CasBackend> open_postgres(const std::string&, const std::string&,
                                          const std::optional<Password>&) {
  throw_usage("this dlock was built without PostgreSQL");
}
#endif

#ifdef DLOCK_WITH_MYSQL
std::unique_ptr<CasBackend> open_mysql(MysqlAddress address, const std::string& shown,
                                       const std::optional<Password>& password) {
  if (password) address.password = password;
  return std::make_unique<MysqlBackend>(std::move(address), shown);
}
#else
std::unique_ptr<CasBackend> open_mysql(MysqlAddress, const std::string&,
                                       const std::optional<Password>&) {
  throw_usage("this dlock was built without MySQL and MariaDB");
}
#endif

}  // namespace dlock
