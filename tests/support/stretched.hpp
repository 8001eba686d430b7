#pragma once

#include "base/clock.hpp"
#include "base/sanitized.hpp"

namespace dlock::test {

/// The sanitizers make a process start three to ten times slower.
constexpr int slower = sanitized ? 6 : 1;

/// An upper limit for what a test has measured, as it holds on this machine now: longer under a
/// sanitizer, and by as much as there are more running processes than processors. A test that
/// fails because the machine is busy says nothing of dlock.
milliseconds stretched(milliseconds limit);

}  // namespace dlock::test
