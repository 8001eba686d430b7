#pragma once

#include <string>
#include <string_view>

#include "cas/cas_backend.hpp"

namespace dlock {

enum class Dialect { postgres, mysql };

/// The wall clock of the server at this moment, in us since 1970, as an expression in SQL.
std::string_view clock_expression(Dialect dialect);

/// Bytes as an expression in SQL; whatever they are, it holds digits only.
std::string bytes_literal(std::string_view bytes, Dialect dialect);

/// A text of letters, digits, blanks and `_.-` in quotes. Throws Error{bug} for any other.
std::string quoted(const std::string& text);

/// The bytes of hex digits.
std::string from_hex(std::string_view digits);

// The statements of a CasBackend that are the same in every dialect but for how bytes are written.
// All values are digits, so nothing needs quotes; and nothing is prepared or set for a session,
// which would bind the session to this client in a pooler. `table`: its name as SQL has it.

/// The rows that one page of a list holds at most, and those that one sweep looks at.
constexpr int page_rows = 500;
constexpr int rows_per_sweep = 50;

/// Inserts a record unless there is one; the dialect's own words for that have to follow.
std::string insert_statement(const std::string& table, const std::string& name,
                             const Update& update, Version version, Dialect dialect);

/// Writes over a record that still has the version `over`.
std::string update_statement(const std::string& table, const std::string& name, Version over,
                             const Update& update, Version version, Dialect dialect);

/// The part from WHERE on that chooses the first `rows` records under `prefix` and after `after`.
std::string page_condition(const std::string& prefix, const std::string& after, int rows,
                           Dialect dialect);

std::string count_statement(const std::string& table, const std::string& prefix, Dialect dialect);

/// The version that a write over `over` gives: a random one, so that none comes back, of a record
/// that was removed as little as after a failover that has forgotten some writes.
Version next_version(const Snapshot& over);

}  // namespace dlock
