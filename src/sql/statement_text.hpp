#pragma once

#include <string>
#include <string_view>

namespace dlock {

/// Bytes as an expression in SQL; whatever they are, it holds digits only.
std::string bytes_literal(std::string_view bytes);

/// A condition on the column `name`: it begins with `prefix`.
std::string is_under(const std::string& prefix);

/// A text of letters, digits, blanks and `_.-` in quotes. Throws Error{bug} for any other.
std::string quoted(const std::string& text);

/// The bytes of hex digits.
std::string from_hex(std::string_view digits);

}  // namespace dlock
