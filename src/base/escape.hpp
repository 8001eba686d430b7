#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dlock {

/// `text` as it may be shown on a terminal or in a log: one line, with `\xNN` for every byte of a
/// control character (C0, DEL, C1), a bidirectional control, a line separator or invalid UTF-8,
/// and `\\` for a backslash. Whatever came from a server, another user or argv goes through here.
std::string escaped(std::string_view text);

/// `text` with `\xNN` for every byte that is not ASCII, for those who cannot read UTF-8.
std::string ascii_alone(std::string_view text);

struct CodePoint {
  std::uint32_t value;
  std::size_t bytes;
};

/// What `text`, which is not empty, begins with; nothing where that is not well-formed UTF-8
/// (Unicode 15, table 3-7).
std::optional<CodePoint> first_code_point(std::string_view text);

/// Whether a code point neither steers a terminal nor breaks or turns a line: escaped() leaves it
/// as it is.
bool shows_as_itself(std::uint32_t code_point);

/// Whether `text` is UTF-8 throughout: no overlong forms, surrogates or values above U+10FFFF.
bool is_utf8(std::string_view text);

/// `text` with every byte of `special`, every byte up to blank, DEL and '%' as `%NN`.
std::string percent_encoded(std::string_view text, std::string_view special = "");
void append_percent_encoded(std::string& out, std::string_view text, std::string_view special = "");

/// The reverse; a '%' without two hex digits behind it stays.
std::string percent_decoded(std::string_view text);

}  // namespace dlock
