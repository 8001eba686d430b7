#pragma once

#include <string>

namespace dlock::test {

/// How many wait for a file that others have locked with flock(2), as the kernel counts them.
long queued_at_file(const std::string& path);

}  // namespace dlock::test
