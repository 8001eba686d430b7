#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lock/claim.hpp"
#include "rule/lock_table.hpp"

namespace dlock {

/// Where a file has the lines of the waiters that its table's text leaves out, and their hash.
struct MoreWaiters {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;  ///< 0: it leaves none out
  std::uint64_t hash = 0;
  bool operator==(const MoreWaiters&) const = default;
};

/// A table as its file holds it: lines of percent-encoded fields, the first naming format and
/// version, the last one `end`. People may read it; only dlock writes it. Of the queue it has the
/// first `waiters`; `more` says where the others are, and makes it a text of version 2.
std::string table_text(const LockKey& key, const LockTable& table, std::size_t waiters = SIZE_MAX,
                       const MoreWaiters& more = {});

/// The lines of the waiters of a queue from the `first` on.
std::string waiter_lines(const LockTable& table, std::size_t first);

struct NamedTable {
  LockKey key;
  LockTable table;
  MoreWaiters more{};  ///< after those of the table
};

/// The reverse. Throws Error{wrong_data} if `text` is anything else; `where` names the file.
NamedTable parse_table(std::string_view text, const std::string& where);

/// Appends the waiters of up to `most` lines to the queue; answers the lines that are left.
std::string_view parse_waiters(std::string_view lines, std::size_t most, const std::string& where,
                               LockTable& table);

/// The same for a record that clients on several hosts share: without their processes.
std::string record_text(const LockKey& key, const LockTable& table);

/// The reverse; a record of another version of dlock is refused as well.
NamedTable parse_record(std::string_view text, const std::string& where);

}  // namespace dlock
