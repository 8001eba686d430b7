#include "sql/open_database.hpp"

#include <utility>

#include "base/error.hpp"
#ifdef DLOCK_WITH_POSTGRESQL
#include "sql/postgres_backend.hpp"
#endif
#ifdef DLOCK_WITH_MYSQL
#include "sql/mysql_backend.hpp"
#endif

namespace dlock {

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
