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

enum class DatabaseKind { postgres, mysql };

/// The facts about a database, unjudged.
struct DatabaseFacts {
  DatabaseKind kind = DatabaseKind::postgres;
  Fault unreachable;      ///< empty if it answered at all
  bool denied = false;    ///< it did, with a refusal of the login
  std::string broke_off;  ///< why it was not heard out
  std::chrono::nanoseconds connected_in{0};
  std::chrono::nanoseconds round_trip{0};  ///< the median of some
  std::vector<ClockSample> clock;
  bool pooled = false;  ///< another session answers than the one that was logged in
  bool socket = false;  ///< a Unix socket; known only if not pooled, as is `here`
  bool here = false;    ///< the server is on this host
  /// By the names in examine_postgres.cpp, or those that MySQL has for its variables.
  ServerInfo settings;
  bool tried = false;  ///< whether a lock was
  TrialLock trial;
};

/// How to ask one kind of database; each throws an Error if there is no answer.
struct DatabaseQuestions {
  std::function<microseconds()> clock;                 ///< by the server's wall clock
  std::function<void(DatabaseFacts& facts)> settings;  ///< all else
};

/// Asks in the order in which the facts can be judged, with errors as facts; `shown` is cut from
/// their texts.
void ask_database(const DatabaseQuestions& ask, const std::string& shown, DatabaseFacts& facts);

// Asking a database. Trouble with it is a fact, and never thrown. Both take some 300 ms, for the
// pace of its clock, and try no lock. `shown`: the URL for people.

DatabaseFacts examine_postgres(const std::string& url, const std::string& shown,
                               const std::optional<Password>& password);
DatabaseFacts examine_mysql(MysqlAddress address, const std::string& shown,
                            const std::optional<Password>& password);

}  // namespace dlock
