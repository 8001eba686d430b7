#pragma once

#include <string>
#include <string_view>

namespace dlock {

/// How many columns of a terminal the escaped `text` takes: two for each wide character (CJK,
/// emoji), none for a character that joins the one before it.
std::size_t display_width(std::string_view text);

/// Shortens `text` to at most `columns` columns; `mark` then replaces the rest, and counts.
std::string cut_to(std::string_view text, std::size_t columns, std::string_view mark);

}  // namespace dlock
