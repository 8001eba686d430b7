#pragma once

#include <string>
#include <vector>

#include "base/wait.hpp"

namespace dlock {

/// Runs a program that PATH has, without input, and returns what it writes to stdout. Throws
/// Error{usage} with the first line of its stderr if it cannot be run or fails, and
/// Error{unavailable} if it runs beyond the deadline. An engine calls this for credentials that
/// another program has.
std::string output_of(const std::vector<std::string>& argv, const CallOptions& call_options);

}  // namespace dlock
