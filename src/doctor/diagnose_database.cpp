#include "doctor/diagnose_database.hpp"

#include "base/error.hpp"
#include "doctor/trial_lock.hpp"
#include "doctor/words.hpp"
#ifdef DLOCK_WITH_POSTGRESQL
#include "sql/postgres_backend.hpp"
#endif

namespace dlock {

std::string postgres_rights() {
#ifdef DLOCK_WITH_POSTGRESQL
  return std::string(postgres_schema()) +
         ";\nGRANT SELECT, INSERT, UPDATE, DELETE ON dlock TO \"USER\";\n";
#else
  return {};
#endif
}

Diagnosis diagnose_postgres(const std::string& shown, const std::function<StorePtr()>& open) {
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
