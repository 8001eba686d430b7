#pragma once

#include <sys/types.h>

namespace dlock {

/// For a forked child that stays when its parent has left: a session of its own without a terminal,
/// stdin, stdout and stderr at /dev/null, `/` for a directory, and none of the caller's descriptors
/// any more, so that no pipe, lock or file system waits for it. What dlock opened itself stays.
/// Throws Error{host_refused}.
void let_go_of_caller();

}  // namespace dlock
