#include "doctor/diagnose_database.hpp"

#include <string_view>

#include "base/error.hpp"
#include "doctor/ask.hpp"
#include "doctor/examine_database.hpp"
#include "doctor/judge_database.hpp"
#include "doctor/trial_lock.hpp"
#ifdef DLOCK_WITH_MYSQL
#include "sql/mysql_backend.hpp"
#endif
#ifdef DLOCK_WITH_POSTGRESQL
#include "sql/postgres_backend.hpp"
#endif

namespace dlock {
namespace {

[[maybe_unused]] constexpr std::string_view grant = "GRANT SELECT, INSERT, UPDATE, DELETE ON ";

DatabaseFacts examine(const DatabaseAddress& database) {
  if (database.mysql) {
#ifdef DLOCK_WITH_MYSQL
    return examine_mysql(*database.mysql, database.shown, database.password);
#endif
  } else {
#ifdef DLOCK_WITH_POSTGRESQL
    return examine_postgres(database.url, database.shown, database.password);
#endif
  }
  throw_usage("this dlock was built without " +
              std::string(database.mysql ? "MySQL and MariaDB" : "PostgreSQL"));
}

}  // namespace

std::string postgres_rights([[maybe_unused]] std::string url) {
#ifdef DLOCK_WITH_POSTGRESQL
  std::string schema = take_schema(url);
  for (auto at = schema.find('"'); at != std::string::npos; at = schema.find('"', at + 2)) {
    schema.insert(at, 1, '"');
  }
  const std::string to_user = " TO \"USER\";\n";
  const std::string in = schema.empty() ? "public" : '"' + schema + '"';
  return postgres_schema(in + ".dlock") + ";\n" +
         (schema.empty() ? "" : "GRANT USAGE ON SCHEMA " + in + to_user) + std::string(grant) + in +
         ".dlock" + to_user;
#else
  return {};
#endif
}

std::string mysql_rights() {
#ifdef DLOCK_WITH_MYSQL
  return std::string(mysql_schema()) + ";\n" + std::string(grant) + "dlock TO 'USER'@'%';\n";
#else
  return {};
#endif
}

Diagnosis diagnose_database(const DatabaseAddress& database, milliseconds ttl,
                            const std::function<StorePtr()>& open) {
  DatabaseFacts facts = examine(database);
  const bool reached = facts.unreachable.empty() && facts.broke_off.empty();
  if (reached && takes_locks(facts)) {
    facts.tried = true;
    const StorePtr first = open(), second = open();
    facts.trial = hold_trial_lock(*first, *second, scratch_key());
    std::string& trouble = facts.trial.trouble.text;
    trouble = bare_trouble(trouble, database.shown);
  }
  return {database.shown, database_label(facts), judge_database(facts, ttl)};
}

}  // namespace dlock
