#pragma once

#include <functional>
#include <optional>
#include <string>

#include "doctor/examine_database.hpp"
#include "doctor/facts.hpp"
#include "doctor/finding.hpp"
#include "lock/store.hpp"
#include "sql/database.hpp"

namespace dlock {

// Pure functions from facts to findings, in the order in which they are shown.

Findings judge_database(const DatabaseFacts& facts);

/// Whether the database keeps locks through crashes and failovers, in database_durability.cpp.
Finding judge_durability(const DatabaseFacts& facts);
Finding judge_standbys(const DatabaseFacts& facts);

/// A short label that says how safe locks are there.
std::string database_label(const DatabaseFacts& facts);

/// Whether the server accepts locks: only a primary does.
bool takes_locks(const DatabaseFacts& facts);

/// The address of a database: `mysql`, or a URL for libpq.
struct DatabaseAddress {
  std::string url;
  std::string shown;  ///< the URL without secrets, for messages
  std::optional<Password> password{};
  std::optional<MysqlAddress> mysql{};
};

/// Examines a database, tries a lock there with two stores from `open`, and runs the checks. Leaves
/// only the table behind.
Diagnosis diagnose_database(const DatabaseAddress& database, const DoctorOptions& exam,
                            const std::function<StorePtr()>& open);

/// The statements by which an administrator lets dlock's user, here `USER`, lock there.
std::string postgres_rights(const std::string& url);
std::string mysql_rights();

}  // namespace dlock
