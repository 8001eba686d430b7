#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "doctor/facts.hpp"
#include "sql/database.hpp"

namespace dlock {

/// The largest time in us that is accepted from a server (the year 2255): in ns a larger one would
/// overflow.
constexpr std::int64_t latest_clock = 9'000'000'000'000'000;

// Both take about 300 ms, to see the pace of the server's clock, and try no lock. A failure of the
// database becomes a fact. `shown` is the URL in messages.

DatabaseFacts examine_postgres(const std::string& url, const std::string& shown,
                               const std::optional<Password>& password);
DatabaseFacts examine_mysql(MysqlAddress address, const std::string& shown,
                            const std::optional<Password>& password);

}  // namespace dlock
