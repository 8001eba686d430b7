#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/mysql_address.hpp"
#include "doctor/facts.hpp"

namespace dlock {

/// A server's clock cannot show more us since 1970 (the year 2255): in ns, they would overflow.
constexpr std::int64_t latest_clock = 9'000'000'000'000'000;

// Asking a database. Trouble with it is a fact, and never thrown. Both take some 300 ms, for the
// pace of its clock, and try no lock. `shown`: the URL for people.

DatabaseFacts examine_postgres(const std::string& url, const std::string& shown,
                               const std::optional<Password>& password);
DatabaseFacts examine_mysql(MysqlAddress address, const std::string& shown,
                            const std::optional<Password>& password);

}  // namespace dlock
