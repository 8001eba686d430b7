#pragma once

#include <string>
#include <string_view>

#include "lock/claim.hpp"
#include "rule/lock_table.hpp"

namespace dlock {

/// A table as its file holds it: lines of percent-encoded fields, the first naming format and
/// version, the last one `end`. People may read it; only dlock writes it. `more_waiters` are lines
/// of waiters that come after those of the table.
std::string table_text(const LockKey& key, const LockTable& table,
                       std::string_view more_waiters = {});

struct NamedTable {
  LockKey key;
  LockTable table;
  std::string_view more_waiters{};  ///< of the text, not parsed; empty if all were
};

/// The reverse. Throws Error{wrong_data} if `text` is anything else; `where` names the file.
NamedTable parse_table(std::string_view text, const std::string& where);

/// The same; but if `holder` has a hold, only the first `waiters` of the queue are parsed, which is
/// all that its renewal and its release look at.
NamedTable parse_table(std::string_view text, const std::string& where, const Token& holder,
                       std::size_t waiters);

/// Parses lines of waiters that parse_table() left, and appends them to the queue.
void parse_more_waiters(std::string_view lines, const std::string& where, LockTable& table);

/// The same for a record that clients on several hosts share: without their processes.
std::string record_text(const LockKey& key, const LockTable& table);

/// The reverse; a record of another version of dlock is refused as well.
NamedTable parse_record(std::string_view text, const std::string& where);

}  // namespace dlock
