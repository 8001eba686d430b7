#pragma once

#include <string>
#include <utility>
#include <vector>

#include "support/process.hpp"

namespace dlock::test {

/// The argv of `supervised` (tests/shim): a dlock without locks. Its source describes its options.
inline std::vector<std::string> supervised(const std::vector<std::string>& command,
                                           std::vector<std::string> options = {}) {
  options.insert(options.begin(), DLOCK_SUPERVISED);
  options.emplace_back("--");
  options.insert(options.end(), command.begin(), command.end());
  return options;
}

inline std::vector<std::string> shell(const std::string& script) { return {"sh", "-c", script}; }

/// Whether stderr contains `text`, as in its report of the child's end.
inline bool says(const Result& result, const std::string& text) {
  return result.err.find(text) != std::string::npos;
}

}  // namespace dlock::test
