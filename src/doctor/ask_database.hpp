#pragma once

#include <functional>

#include "doctor/database_facts.hpp"

namespace dlock {

/// How to ask one kind of database; each throws an Error if there is no answer.
struct DatabaseQuestions {
  std::function<microseconds()> clock;                 ///< by the server's wall clock
  std::function<void(DatabaseFacts& facts)> settings;  ///< all else
};

/// Asks in the order in which the facts can be judged, with errors as facts; `shown` is cut from
/// their texts.
void ask_database(const DatabaseQuestions& ask, const std::string& shown, DatabaseFacts& facts);

}  // namespace dlock
