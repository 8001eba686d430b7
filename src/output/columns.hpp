#pragma once

#include <string>
#include <string_view>

namespace dlock {

/// How many columns of a terminal `text` takes, which is escaped: two for each wide character (CJK,
/// emoji), none for what joins the one before it.
std::size_t display_width(std::string_view text);

/// `text`, of which no more than `columns` remain, `mark` included, which stands where the rest
/// was.
std::string cut_to(std::string_view text, std::size_t columns, std::string_view mark);

}  // namespace dlock
