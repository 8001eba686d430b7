#pragma once

#include <string>

#include "base/call_options.hpp"

namespace dlock {

/// Locks an open file with flock(2) for its open file description; KeyFile calls it, and unlocks
/// it. The processes that find it locked queue in the kernel, which serves them in order: a hundred
/// of them that look again and again would leave the processor to nobody, and some of them out.
/// `where` names the file in messages. Throws Error{unavailable} at the deadline, for then a
/// process inside was stopped; Error{interrupted}; Error{host_refused} if the file system has no
/// locks.
void lock_file(int fd, const CallOptions& call_options, const std::string& where);

}  // namespace dlock
