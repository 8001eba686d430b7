#pragma once

#include <sys/types.h>

#include <vector>

#include "base/clock.hpp"

namespace dlock::test {

/// How often a process has given up its processor voluntarily, as when it sleeps; -1 if unknown.
long voluntary_switches(pid_t pid);

/// Waits until each living process of `pids` is asleep and has not woken for `quiet`; false on
/// timeout. A process that waits for a processor counts as awake, and so does a stopped one.
bool fall_asleep(const std::vector<pid_t>& pids, milliseconds quiet = milliseconds(20));

}  // namespace dlock::test
