#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"

namespace dlock::test {

/// The whole of a file; Error where it cannot be read.
std::string read_file(const std::string& path);

/// Creates or replaces a file.
void write_file(const std::string& path, std::string_view text);

/// The same, where others may read the file at any moment: they find the old text or the new one.
void replace_file(const std::string& path, std::string_view text);

/// Whether `path` comes to exist within the time: how a child tells its test "I am here".
bool wait_for_file(const std::string& path, milliseconds within = milliseconds(30'000));

/// The lines of `text`; a last one without a newline counts.
std::size_t count_lines(std::string_view text);
std::vector<std::string> lines_of(const std::string& text);

}  // namespace dlock::test
