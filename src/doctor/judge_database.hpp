#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/mysql_address.hpp"
#include "doctor/examine_database.hpp"
#include "doctor/facts.hpp"
#include "doctor/finding.hpp"
#include "lock/store.hpp"

namespace dlock {

// From facts to findings: pure, and in the order in which people read them.

Findings judge_database(const DatabaseFacts& facts);

/// Whether the database keeps locks through crashes and failovers, in judge_durability.cpp.
Finding judge_durability(const DatabaseFacts& facts);
Finding judge_standbys(const DatabaseFacts& facts);

/// The worth of locks there, in some words.
std::string database_label(const DatabaseFacts& facts);

/// Whether locks may be tried there: nothing but a primary takes any.
bool takes_locks(const DatabaseFacts& facts);

/// Where a database is; as in base/mysql_address.hpp, or a URL for libpq.
struct DatabaseAddress {
  std::string url;
  std::string shown;  ///< the URL for people
  std::optional<Password> password{};
  std::optional<MysqlAddress> mysql{};
};

/// Examines a database, tries a lock there by two stores of `open`, and judges it. Leaves nothing
/// behind but the table.
Diagnosis diagnose_database(const DatabaseAddress& database, const DoctorOptions& exam,
                            const std::function<StorePtr()>& open);

/// What an administrator says to a database to let dlock's user, here `USER`, lock there.
std::string postgres_rights(const std::string& url);
std::string mysql_rights();

}  // namespace dlock
