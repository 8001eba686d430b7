#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"

namespace dlock::test {

/// The contents of a file; Error if it cannot be read.
std::string read_file(const std::string& path);

/// Creates or replaces a file.
void write_file(const std::string& path, std::string_view text);

/// Replaces a file atomically: concurrent readers see the old text or the new one.
void replace_file(const std::string& path, std::string_view text);

/// Whether `path` appears within the time; a child creates such a file to signal its test.
bool wait_for_file(const std::string& path, milliseconds within = milliseconds(30'000));

/// The number of lines; a last one without a newline counts.
std::size_t count_lines(std::string_view text);
std::vector<std::string> lines_of(const std::string& text);

/// The number of flock(2) waiters of this file, as the kernel counts them.
long queued_at_file(const std::string& path);

}  // namespace dlock::test
