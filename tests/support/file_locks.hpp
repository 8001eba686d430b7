#pragma once

#include <string>

namespace dlock::test {

/// The number of flock(2) waiters of this file, as the kernel counts them.
long queued_at_file(const std::string& path);

}  // namespace dlock::test
