#pragma once

#include <string_view>

namespace dlock {

/// The texts that differ between the dialects of SQL.
struct SqlDialect {
  std::string_view clock;          ///< the wall clock of the server now, in us since 1970
  std::string_view begin_bytes;    ///< begins a literal of bytes, before hexadecimal digits
  std::string_view begin_deletes;  ///< begins a message that only deletes rows
  std::string_view table;          ///< the table, unless the user chooses another schema
  std::string_view columns;
  std::string_view other_table;  ///< how the user chooses another table
};

// now() would be the time when the transaction began. The statements of one message are one
// transaction, which a role may start read-only by default.
inline constexpr SqlDialect postgres_dialect{
    "(extract(epoch from clock_timestamp()) * 1000000)::bigint",
    "E'\\\\x",
    "SET TRANSACTION READ WRITE; ",
    "public.dlock",
    "(name bytea PRIMARY KEY, version bigint NOT NULL, ends bigint NOT NULL, body bytea NOT NULL) "
    "WITH (fillfactor = 50)",
    " (?dlock-schema=NAME names another schema)"};

// UNIX_TIMESTAMP(NOW()) would use the session's time zone, in which one hour a year occurs twice.
inline constexpr SqlDialect mysql_dialect{
    "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
    "x'",
    "",
    "dlock",
    "(name VARBINARY(700) PRIMARY KEY, version BIGINT NOT NULL, ends BIGINT NOT NULL, body "
    "MEDIUMBLOB NOT NULL) ENGINE=InnoDB",
    ""};

}  // namespace dlock
