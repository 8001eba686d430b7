#include "sql/statements.hpp"

#include <algorithm>
#include <cctype>

#include "base/error.hpp"
#include "base/random.hpp"

namespace dlock {
namespace {

constexpr std::string_view hex_digits = "0123456789abcdef";

/// The condition that the column `name` begins with `prefix`.
std::string is_under(const std::string& prefix, Dialect dialect) {
  // Prefixes end in a colon, so a name has the prefix if it is less than the prefix with the next
  // byte there.
  std::string end = prefix;
  ++end.back();
  return "name >= " + bytes_literal(prefix, dialect) + " AND name < " + bytes_literal(end, dialect);
}

}  // namespace

std::string_view clock_expression(Dialect dialect) {
  // UNIX_TIMESTAMP(NOW()) would use the session's time zone, in which one hour a year occurs twice.
  if (dialect == Dialect::mysql) {
    return "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
  }
  // now() would be the time when the transaction began.
  return "(extract(epoch from clock_timestamp()) * 1000000)::bigint";
}

std::string bytes_literal(std::string_view bytes, Dialect dialect) {
  constexpr std::string_view longest_frame = "decode('', 'hex')";
  std::string text = dialect == Dialect::mysql ? "x'" : "decode('";
  text.reserve(2 * bytes.size() + longest_frame.size());
  for (const char each : bytes) {
    const auto byte = static_cast<unsigned char>(each);
    text += hex_digits[byte >> 4];
    text += hex_digits[byte & 15];
  }
  return text + (dialect == Dialect::mysql ? "'" : "', 'hex')");
}

std::string quoted(const std::string& text) {
  const bool plain = std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == ' ' || c == '_' || c == '.' || c == '-';
  });
  if (!plain) throw Error(ErrorKind::bug, "a message cannot be quoted");
  return "'" + text + "'";
}

std::string from_hex(std::string_view digits) {
  std::string bytes;
  bytes.reserve(digits.size() / 2);
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2) {
    bytes += static_cast<char>(hex_digits.find(digits[i]) * 16 + hex_digits.find(digits[i + 1]));
  }
  return bytes;
}

std::string insert_statement(const std::string& table, const std::string& name,
                             const Update& update, Version version, Dialect dialect) {
  return "INSERT INTO " + table + " (name, version, ends, body) VALUES (" +
         bytes_literal(name, dialect) + ", " + std::to_string(version) + ", " +
         std::to_string(update.ends.count()) + ", " + bytes_literal(update.text, dialect) + ")";
}

std::string update_statement(const std::string& table, const std::string& name, Version over,
                             const Update& update, Version version, Dialect dialect) {
  return "UPDATE " + table + " SET version = " + std::to_string(version) +
         ", ends = " + std::to_string(update.ends.count()) +
         ", body = " + bytes_literal(update.text, dialect) +
         " WHERE name = " + bytes_literal(name, dialect) + " AND version = " + std::to_string(over);
}

std::string page_condition(const std::string& prefix, const std::string& after, int rows,
                           Dialect dialect) {
  return "WHERE " + is_under(prefix, dialect) + " AND name > " + bytes_literal(after, dialect) +
         " ORDER BY name LIMIT " + std::to_string(rows);
}

std::string count_statement(const std::string& table, const std::string& prefix, Dialect dialect) {
  return "SELECT count(*) FROM " + table + " WHERE " + is_under(prefix, dialect);
}

std::string new_channel() {
  constexpr std::size_t bytes = 8;
  return "dlock_" + random_hex(bytes);
}

Version next_version(const Snapshot& over) {
  constexpr std::size_t bytes = 7;
  while (true) {
    const auto next = static_cast<Version>(std::stoull(random_hex(bytes), nullptr, 16)) + 1;
    if (next != over.version) return next;
  }
}

}  // namespace dlock
