#pragma once

#include <optional>
#include <string>

#include "base/mysql_address.hpp"
#include "doctor/database_facts.hpp"

namespace dlock {

// Asking a database. Trouble with it is a fact, and never thrown. Both take some 300 ms, for the
// pace of its clock, and try no lock. `shown`: the URL for people.

DatabaseFacts examine_postgres(const std::string& url, const std::string& shown,
                               const std::optional<Password>& password);
DatabaseFacts examine_mysql(MysqlAddress address, const std::string& shown,
                            const std::optional<Password>& password);

}  // namespace dlock
