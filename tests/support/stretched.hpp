#pragma once

#include "base/clock.hpp"

namespace dlock::test {

/// The sanitizers make a process start three to ten times slower.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int slower = 6;
constexpr bool sanitized = true;
#else
constexpr int slower = 1;
constexpr bool sanitized = false;
#endif

/// An upper limit for what a test has measured, as it holds on this machine now: longer under a
/// sanitizer, and by as much as there are more running processes than processors. A test that
/// fails because the machine is busy says nothing of dlock.
milliseconds stretched(milliseconds limit);

}  // namespace dlock::test
