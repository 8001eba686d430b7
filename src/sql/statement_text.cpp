#include "sql/statement_text.hpp"

#include <algorithm>
#include <cctype>

#include "base/error.hpp"

namespace dlock {
namespace {

constexpr std::string_view hex_digits = "0123456789abcdef";

}  // namespace

std::string bytes_literal(std::string_view bytes) {
  std::string text = "decode('";
  text.reserve(text.size() + 2 * bytes.size() + 8);
  for (const unsigned char byte : bytes) {
    text += hex_digits[byte >> 4];
    text += hex_digits[byte & 15];
  }
  return text + "', 'hex')";
}

std::string is_under(const std::string& prefix) {
  // Prefixes end in a colon; a name begins with one if it lies before the next byte there.
  std::string end = prefix;
  ++end.back();
  return "name >= " + bytes_literal(prefix) + " AND name < " + bytes_literal(end);
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

}  // namespace dlock
