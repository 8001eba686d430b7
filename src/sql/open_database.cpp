#include "sql/open_database.hpp"

#ifdef DLOCK_WITH_POSTGRESQL
#include "sql/postgres_backend.hpp"
#else
#include "base/error.hpp"
#endif

namespace dlock {

#ifdef DLOCK_WITH_POSTGRESQL
std::unique_ptr<CasBackend> open_database(const std::string& url, const std::string& shown,
                                          const std::optional<std::string>& password) {
  return std::make_unique<PostgresBackend>(PostgresTerms{url, password, shown});
}
#else
std::unique_ptr<CasBackend> open_database(const std::string&, const std::string&,
                                          const std::optional<std::string>&) {
  throw_usage("this dlock was built without databases");
}
#endif

}  // namespace dlock
