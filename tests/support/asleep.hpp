#pragma once

#include <sys/types.h>

#include <vector>

#include "base/clock.hpp"

namespace dlock::test {

/// How often a process has left its processor by itself, as it does to sleep; -1 where there is
/// none of this number.
long voluntary_switches(pid_t pid);

/// Waits until each of these that lives sleeps, and has not woken for so long; whether it came to
/// that. One that has no processor yet is awake, and so is one that is stopped.
bool fall_asleep(const std::vector<pid_t>& pids, milliseconds quiet = milliseconds(20));

}  // namespace dlock::test
