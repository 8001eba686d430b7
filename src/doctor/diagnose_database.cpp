#include "doctor/diagnose_database.hpp"

#include <string_view>

#include "base/error.hpp"
#include "doctor/trial_lock.hpp"
#include "doctor/words.hpp"
#ifdef DLOCK_WITH_MYSQL
#include "sql/mysql_backend.hpp"
#endif
#ifdef DLOCK_WITH_POSTGRESQL
#include "sql/postgres_backend.hpp"
#endif

namespace dlock {
namespace {

[[maybe_unused]] constexpr std::string_view grant =
    "GRANT SELECT, INSERT, UPDATE, DELETE ON dlock TO ";

}  // namespace

std::string postgres_rights() {
#ifdef DLOCK_WITH_POSTGRESQL
  return std::string(postgres_schema()) + ";\n" + std::string(grant) + "\"USER\";\n";
#else
  return {};
#endif
}

std::string mysql_rights() {
#ifdef DLOCK_WITH_MYSQL
  return std::string(mysql_schema()) + ";\n" + std::string(grant) + "'USER'@'%';\n";
#else
  return {};
#endif
}

Diagnosis diagnose_database(const std::string& shown, const std::function<StorePtr()>& open) {
  Diagnosis diagnosis{shown, "safe through restarts, best effort through failovers", {}};
  const StorePtr first = open(), second = open();
  const TrialLock trial = rehearse(*first, *second, scratch_key());
  diagnosis.findings.push_back(
      trial.trouble.empty()
          ? good("lock", "taken, handed over in " + span_text(trial.handed_over_in) + ", released")
          : bad("lock", trial.trouble.text, "fix that first"));
  return diagnosis;
}

}  // namespace dlock
