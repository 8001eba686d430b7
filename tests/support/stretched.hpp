#pragma once

#include "base/clock.hpp"
#include "base/process.hpp"

namespace dlock::test {

/// The sanitizers make the start of a process three to ten times slower.
constexpr int slower = sanitized ? 6 : 1;

/// An upper limit for a measured time, adapted to this machine: longer under a sanitizer, and
/// longer by the ratio of running processes to processors. A test that fails because the machine is
/// busy says nothing about dlock.
milliseconds stretched(milliseconds limit);

}  // namespace dlock::test
