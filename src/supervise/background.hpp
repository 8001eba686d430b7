#pragma once

#include <sys/types.h>

namespace dlock {

/// Detaches a forked child that outlives its parent. It gets its own session without a terminal,
/// stdin, stdout and stderr at /dev/null, and `/` as its directory. It closes the caller's
/// descriptors, so that no pipe, lock or file system waits for it, and keeps those that dlock
/// opened. Throws Error{host_refused}.
void let_go_of_caller();

}  // namespace dlock
