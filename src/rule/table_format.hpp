#pragma once

#include <string>
#include <string_view>

#include "lock/claim.hpp"
#include "rule/lock_table.hpp"

namespace dlock {

/// The text of a table for its file: lines of percent-encoded fields, the first with format and
/// version, the last one `end`. Users may read it; only dlock writes it. It contains the first
/// `waiters` of the queue.
std::string table_text(const LockKey& key, const LockTable& table, std::size_t waiters = SIZE_MAX);

/// The lines of the waiters of a queue, from index `first` on.
std::string waiter_lines(const LockTable& table, std::size_t first);

struct NamedTable {
  LockKey key;
  LockTable table;
};

/// Parses the text of a table. Throws Error{wrong_data} if `text` is anything else; `where` names
/// the file.
NamedTable parse_table(std::string_view text, const std::string& where);

/// Appends the waiters of these lines to the queue.
void parse_waiters(std::string_view lines, const std::string& where, LockTable& table);

/// The text of a table for a record that clients on several hosts share: without their processes.
std::string record_text(const LockKey& key, const LockTable& table);

/// Parses such a record, or throws as parse_table() does.
NamedTable parse_record(std::string_view text, const std::string& where);

}  // namespace dlock
