#pragma once

#include <string>
#include <string_view>

#include "cas/cas_backend.hpp"

namespace dlock {

enum class Dialect { postgres, mysql };

/// The wall clock of the server now, in us since 1970, as an SQL expression.
std::string_view clock_expression(Dialect dialect);

/// Any bytes as an SQL expression in hexadecimal digits.
std::string bytes_literal(std::string_view bytes, Dialect dialect);

/// A text of letters, digits, blanks and `_.-` in quotes. Throws Error{bug} for any other text.
std::string quoted(const std::string& text);

/// Decodes hexadecimal digits.
std::string from_hex(std::string_view digits);

// The statements of a CasBackend that differ between dialects only in how bytes are written. All
// values are digits, so quotes are not needed. No session state is prepared or set, because that
// would bind a pooler's session to this client. `table`: the name in SQL syntax.

/// How many rows a page of a list has at most, and how many a sweep looks at.
constexpr int page_rows = 500;
constexpr int rows_per_sweep = 50;

/// Inserts a record; the caller adds the dialect's clause for an existing one.
std::string insert_statement(const std::string& table, const std::string& name,
                             const Update& update, Version version, Dialect dialect);

/// Replaces a record that still has the version `over`.
std::string update_statement(const std::string& table, const std::string& name, Version over,
                             const Update& update, Version version, Dialect dialect);

/// The part from WHERE on that selects the first `rows` records with `prefix` and after `after`.
std::string page_condition(const std::string& prefix, const std::string& after, int rows,
                           Dialect dialect);

std::string count_statement(const std::string& table, const std::string& prefix, Dialect dialect);

/// A name for the channel of a client's messages.
std::string new_channel();

/// The version for a write over `over`. It is random, so that none repeats, even after a record was
/// removed or a failover lost some writes.
Version next_version(const Snapshot& over);

}  // namespace dlock
