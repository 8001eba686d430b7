#include "doctor/diagnose_database.hpp"

#include <string_view>

#include "base/error.hpp"
#include "doctor/ask.hpp"
#include "doctor/examine_database.hpp"
#include "doctor/judge_database.hpp"
#include "doctor/trial_lock.hpp"
#include "sql/open_database.hpp"
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

/// A free key's record would keep its fence for a week.
void sweep(const DatabaseAddress& database, const std::string& record) {
  const auto place = database.mysql
                         ? open_mysql(*database.mysql, database.shown, database.password)
                         : open_postgres(database.url, database.shown, database.password);
  constexpr microseconds long_ago{1};
  const CallOptions soon{later(BootClock::now(), milliseconds(2000)), -1};
  try {
    const Snapshot seen = place->read(record, "", soon);
    if (seen.version == 0) return;
    place->write(record, seen, {seen.text, long_ago}, soon);
    place->sweep(record, "", soon);
  } catch (const Error&) {
    // doctor has told the fault already; the record ends by itself.
  }
}

}  // namespace

std::string postgres_rights([[maybe_unused]] const std::string& url) {
#ifdef DLOCK_WITH_POSTGRESQL
  std::string rest = url;
  std::string schema = take_schema(rest);
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

Diagnosis diagnose_database(const DatabaseAddress& database, const DoctorOptions& exam,
                            const std::function<StorePtr()>& open) {
  DatabaseFacts facts = examine(database);
  const bool reached = facts.unreachable.empty() && facts.broke_off.empty();
  if (reached && takes_locks(facts)) {
    facts.tried = true;
    const StorePtr first = open(), second = open();
    const LockKey scratch = scratch_key();
    facts.trial = hold_trial_lock(*first, *second, scratch);
    sweep(database, exam.prefix + "k:" + scratch.text);
    std::string& trouble = facts.trial.trouble.text;
    trouble = bare_trouble(trouble, database.shown);
  }
  return {database.shown, database_label(facts), judge_database(facts, exam.ttl)};
}

}  // namespace dlock
