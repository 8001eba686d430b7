#pragma once

#include <functional>
#include <string>

#include "doctor/facts.hpp"
#include "doctor/finding.hpp"
#include "lock/store.hpp"
#include "sql/postgres_connection.hpp"

namespace dlock {

/// Looks at a PostgreSQL database as dlock would reach it, tries a lock there by two stores of
/// `open`, and judges what it is worth. Leaves nothing behind but the table.
Diagnosis diagnose_postgres(const PostgresTerms& database, const std::function<StorePtr()>& open);

/// What an administrator says to a database to let dlock's user, here `USER`, lock there.
std::string postgres_rights();

}  // namespace dlock
