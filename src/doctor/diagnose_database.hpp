#pragma once

#include <functional>
#include <string>

#include "doctor/facts.hpp"
#include "doctor/finding.hpp"
#include "lock/store.hpp"

namespace dlock {

/// Tries a lock in a database, by two stores of `open`. Leaves nothing behind but the
/// table. `shown`: the URL for people.
Diagnosis diagnose_database(const std::string& shown, const std::function<StorePtr()>& open);

/// What an administrator says to a database to let dlock's user, here `USER`, lock there.
std::string postgres_rights();
std::string mysql_rights();

}  // namespace dlock
