#pragma once

#include <string>
#include <string_view>

#include "lock/claim.hpp"
#include "rule/lock_table.hpp"

namespace dlock {

/// A table as its file holds it: lines of percent-encoded fields, the first naming format and
/// version, the last one `end`. People may read it; only dlock writes it.
std::string table_text(const LockKey& key, const LockTable& table);

struct NamedTable {
  LockKey key;
  LockTable table;
};

/// The reverse. Throws Error{wrong_data} if `text` is anything else; `where` names the file.
NamedTable parse_table(std::string_view text, const std::string& where);

/// The same for a record that clients on several hosts share: without their processes.
std::string record_text(const LockKey& key, const LockTable& table);

/// The reverse; a record of another version of dlock is refused as well.
NamedTable parse_record(std::string_view text, const std::string& where);

}  // namespace dlock
